//! 200 programs share four simulated cards for a minute while programs and the agent are killed at random.
//!
//! Safety is watched throughout, from what the simulated cards themselves say: no card is over-committed, no program
//! has a context without a lease, no pod takes more memory than its limit. In the pauses between the killing,
//! programs must get on. At the end every program that nobody killed has done all its rounds.
//!
//! `GPUPOOL_CHAOS_SEED` repeats a run as far as a seed can; `GPUPOOL_CHAOS_SECONDS` makes it longer or shorter.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "in a test a surprise is a failure"
)]

#[path = "../fixtures/agent_node.rs"]
mod agent_node;
#[path = "../fixtures/card_holders.rs"]
mod card_holders;
mod cards;
mod programs;
mod rubbish;
mod scene;

use std::time::{Duration, Instant};

use fastrand::Rng;
use programs::{Fate, Programs};
use scene::Scene;

const PROGRAMS: usize = 200;
const CARDS: usize = 4;
const KILLING: Duration = Duration::from_secs(6);
const PAUSE: Duration = Duration::from_secs(3);
/// How long nothing may move before the run counts as stuck.
const PATIENCE: Duration = Duration::from_secs(90);

#[test]
fn programs_and_agent_are_killed_at_random_and_nothing_is_lost() {
    let seed = setting("GPUPOOL_CHAOS_SEED").unwrap_or_else(|| fastrand::u64(..));
    let seconds = setting("GPUPOOL_CHAOS_SECONDS").unwrap_or(60);
    eprintln!("chaos: GPUPOOL_CHAOS_SEED={seed} for {seconds} s");
    let mut chaos = Chaos::start(Rng::with_seed(seed));

    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        chaos.killing_phase();
        chaos.pause();
    }
    chaos.finish();
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} must be a number")))
}

struct Chaos {
    rng: Rng,
    node: Scene,
    programs: Programs,
    looks: usize,
}

impl Chaos {
    fn start(mut rng: Rng) -> Self {
        let node = Scene::start(CARDS);
        let mut programs = Programs::new(&node);
        for _ in 0..PROGRAMS {
            programs.start(&node, &mut rng);
        }
        Self { rng, node, programs, looks: 0 }
    }

    /// Kills something every few milliseconds; what was killed is replaced, so that the cards stay contended.
    fn killing_phase(&mut self) {
        let end = Instant::now() + KILLING;
        while Instant::now() < end {
            match self.rng.u32(0..100) {
                0..2 => {
                    self.node.kill();
                    std::thread::sleep(Duration::from_millis(self.rng.u64(0..700)));
                    self.node.restart();
                }
                2..30 => self.programs.kill_a_gpu_process(&mut self.rng),
                30..34 => self.programs.kill_a_run(&mut self.rng),
                34..38 => rubbish::send(&self.node, &mut self.rng),
                _ => {}
            }
            self.programs.reap();
            while self.programs.running() < PROGRAMS {
                self.programs.start(&self.node, &mut self.rng);
            }
            self.look();
            std::thread::sleep(Duration::from_millis(self.rng.u64(0..40)));
        }
    }

    /// Nobody is killed: the programs must get on.
    fn pause(&mut self) {
        let before = self.programs.rounds_done();
        let end = Instant::now() + PAUSE;
        while Instant::now() < end {
            self.programs.reap();
            self.look();
            std::thread::sleep(Duration::from_millis(20));
        }
        let deadline = Instant::now() + PATIENCE;
        while self.programs.rounds_done() == before {
            assert!(Instant::now() < deadline, "no round was done in a pause\n{}", self.node.describe());
            self.programs.reap();
            self.look();
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Compares what the cards say with what the agent says.
    fn look(&mut self) {
        cards::check(&self.node, &self.programs);
        self.looks += 1;
    }

    /// Lets everybody finish, then sees that all is well and nothing is left.
    fn finish(mut self) {
        self.programs.kill_orphans();
        let mut moved = (Instant::now(), self.programs.rounds_done());
        while self.programs.running() > 0 {
            self.programs.reap();
            self.look();
            let rounds = self.programs.rounds_done();
            if rounds != moved.1 {
                moved = (Instant::now(), rounds);
            }
            assert!(moved.0.elapsed() < PATIENCE, "programs are stuck\n{}", self.node.describe());
            std::thread::sleep(Duration::from_millis(20));
        }
        self.node.wait_until_empty();

        let fates = self.programs.fates();
        let count = |wanted: Fate| fates.iter().filter(|(_, fate)| *fate == wanted).count();
        let unfinished: Vec<_> = fates.iter().filter(|(_, fate)| matches!(fate, Fate::Failed(_))).collect();
        eprintln!(
            "chaos: {} programs: {} finished, {} killed; {} rounds; agent killed {} times; {} looks, no violation",
            fates.len(),
            count(Fate::Finished),
            count(Fate::Killed),
            self.programs.rounds_done(),
            self.node.restarts(),
            self.looks,
        );
        assert!(unfinished.is_empty(), "survivors that did not finish: {unfinished:?}");
        assert!(count(Fate::Finished) > 0, "nobody finished");
    }
}

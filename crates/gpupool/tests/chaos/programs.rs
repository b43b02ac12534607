//! The programs: started under `gpupool run`, killed at random, and what became of each.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use fastrand::Rng;
use simgpu_device::GRANULE;

use crate::scene::Scene;

/// What became of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Did all its rounds and exited with 0.
    Finished,
    /// Was killed by this test.
    Killed,
    /// Neither.
    Failed(String),
}

struct Program {
    run: Child,
    rounds: u64,
    killed: bool,
}

pub(crate) struct Programs {
    binary: PathBuf,
    progress: PathBuf,
    started: usize,
    running: BTreeMap<String, Program>,
    /// Limit in percent of every program that was ever started, for core and for memory.
    limits: BTreeMap<String, u32>,
    fates: Vec<(String, Fate)>,
    orphans: Vec<u32>,
}

impl Programs {
    pub(crate) fn new(node: &Scene) -> Self {
        let binary = node.folder().join("rounds");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/rounds.c");
        let status = Command::new("gcc").arg("-O1").arg("-o").arg(&binary).arg(source).arg("-ldl").status();
        assert!(status.unwrap().success(), "rounds.c does not compile");
        let progress = node.folder().join("progress");
        fs::create_dir(&progress).unwrap();
        Self {
            binary,
            progress,
            started: 0,
            running: BTreeMap::new(),
            limits: BTreeMap::new(),
            fates: Vec::new(),
            orphans: Vec::new(),
        }
    }

    /// Starts one more program with a share, a number of rounds and a way of life of its own.
    pub(crate) fn start(&mut self, node: &Scene, rng: &mut Rng) {
        let name = format!("program-{}", self.started);
        self.started += 1;
        let limit = [25, 50, 100][rng.usize(0..3)];
        let rounds = rng.u64(4..12);
        let card = node.machine().card(0).expect("there are cards");
        let most = card.total_memory() * u64::from(limit) / 100 - card.model().context_memory - GRANULE;
        let mut command = node.gpupool("run");
        command
            .args(["--name", &name, "--core", &format!("1:{limit}"), "--memory", &format!("1:{limit}")])
            .arg("--")
            .arg(&self.binary)
            .arg(rounds.to_string())
            .arg(rng.u32(5..120).to_string())
            .arg(rng.u32(0..200).to_string())
            .arg(rng.u64(1..most).to_string())
            .arg(self.progress.join(&name))
            .stdin(Stdio::null())
            .stderr(fs::File::create(self.progress.join(format!("{name}.log"))).unwrap());
        match rng.u32(0..6) {
            0 => command.arg("fork"),
            1 => command.arg("exec"),
            _ => &mut command,
        };
        let program = Program { run: command.spawn().unwrap(), rounds, killed: false };
        self.limits.insert(name.clone(), limit);
        self.running.insert(name, program);
    }

    pub(crate) fn running(&self) -> usize {
        self.running.len()
    }

    /// Which program the process belongs to; known by the progress file in its command line, whatever its parents are.
    pub(crate) fn pod_of(&self, pid: u32) -> Option<String> {
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let progress = self.progress.to_str()?;
        let words = line.split(|byte| *byte == 0).filter_map(|word| std::str::from_utf8(word).ok());
        let path = words.into_iter().find(|word| word.starts_with(progress))?;
        Some(Path::new(path).file_name()?.to_str()?.to_owned())
    }

    pub(crate) fn limit_of(&self, name: &str) -> u32 {
        self.limits[name]
    }

    /// Rounds done by all programs, also those that have ended.
    pub(crate) fn rounds_done(&self) -> u64 {
        self.limits.keys().map(|name| self.rounds_of(name)).sum()
    }

    /// Rounds done by each program that runs.
    pub(crate) fn rounds_by_name(&self) -> BTreeMap<String, u64> {
        self.running.keys().map(|name| (name.clone(), self.rounds_of(name))).collect()
    }

    /// Rounds done by one program.
    pub(crate) fn rounds_of(&self, name: &str) -> u64 {
        fs::metadata(self.progress.join(name)).map_or(0, |file| file.len())
    }

    /// `kill -9` for the program itself; its `gpupool run` must pass the death on.
    pub(crate) fn kill_a_gpu_process(&mut self, rng: &mut Rng) {
        let Some(program) = self.pick(rng) else { return };
        let below = descendants(program.run.id());
        if let Some(pid) = below.last() {
            program.killed = true;
            kill(*pid);
        }
    }

    /// `kill -9` for a `gpupool run`; what it leaves behind is killed a little later.
    pub(crate) fn kill_a_run(&mut self, rng: &mut Rng) {
        self.kill_orphans();
        let Some(program) = self.pick(rng) else { return };
        program.killed = true;
        let orphans = descendants(program.run.id());
        kill(program.run.id());
        self.orphans = orphans;
    }

    pub(crate) fn kill_orphans(&mut self) {
        for pid in std::mem::take(&mut self.orphans) {
            // Its number may be another's by now: only what is one of ours is killed.
            if self.pod_of(pid).is_some() {
                kill(pid);
            }
        }
    }

    fn pick(&mut self, rng: &mut Rng) -> Option<&mut Program> {
        let place = rng.usize(0..self.running.len().max(1));
        self.running.values_mut().nth(place).filter(|program| !program.killed)
    }

    /// Takes note of the programs that have ended.
    pub(crate) fn reap(&mut self) {
        let mut ended = Vec::new();
        for (name, program) in &mut self.running {
            if let Some(status) = program.run.try_wait().unwrap() {
                ended.push((name.clone(), status));
            }
        }
        for (name, status) in ended {
            let program = self.running.remove(&name).expect("it was just there");
            let fate = self.fate(&name, &program, status);
            self.fates.push((name, fate));
        }
    }

    fn fate(&self, name: &str, program: &Program, status: ExitStatus) -> Fate {
        let rounds = self.rounds_of(name);
        if status.success() && rounds == program.rounds {
            Fate::Finished
        } else if program.killed && !status.success() {
            Fate::Killed
        } else {
            let log = fs::read_to_string(self.progress.join(format!("{name}.log"))).unwrap_or_default();
            let last: Vec<&str> = log.lines().rev().take(3).collect();
            Fate::Failed(format!("{status}, {rounds} of {} rounds, last words {last:?}", program.rounds))
        }
    }

    pub(crate) fn fates(&self) -> &[(String, Fate)] {
        &self.fates
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        for program in self.running.values_mut() {
            for pid in descendants(program.run.id()) {
                kill(pid);
            }
            // Where the test failed it may have ended already.
            let _ = program.run.kill();
            let _ = program.run.wait();
        }
        self.kill_orphans();
    }
}

/// All processes below `pid`, parents before their children.
fn descendants(pid: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let mut all = Vec::new();
    for child in children.split_whitespace().filter_map(|word| word.parse().ok()) {
        all.push(child);
        all.extend(descendants(child));
    }
    all
}

fn kill(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    // It may have ended by itself in this very moment.
    let _ = pid.map(|pid| rustix::process::kill_process(pid, rustix::process::Signal::KILL));
}

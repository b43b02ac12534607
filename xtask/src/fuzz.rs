//! `cargo xtask fuzz`: broken dumps against `gpupool check-config`, for as long as somebody likes.
//!
//! The real program reads every input, as a user's file would be read. What it may answer is in `answer`. Input
//! number N of a seed is always the same, whatever the machine, so that a finding can be made again.

#![allow(clippy::print_stdout, reason = "what was tried and found is this task's output")]

mod answer;
mod breakage;
mod dumps;
mod grammar;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use fastrand::Rng;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::step;
use answer::Answer;
use breakage::Input;
use dumps::Dump;

/// What may be asked of `cargo xtask fuzz`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How long to go on, in seconds
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Which inputs are made; another number every time when none is named
    #[arg(long)]
    seed: Option<u64>,
}

/// After so many findings the rest would be more of the same.
const ENOUGH: usize = 20;
/// Address space of the checker in bytes. An input of a few megabytes that takes more is a finding: it aborts there.
const MOST_MEMORY: u64 = 4 << 30;

/// What all workers share.
#[derive(Debug)]
struct Hunt<'a> {
    program: &'a Path,
    dumps: &'a [Dump],
    seed: u64,
    end: Instant,
    next: AtomicU64,
    /// Inputs that were answered with exit code 0, 1 and 2.
    answered: [AtomicU64; 3],
    findings: Mutex<Vec<(u64, String)>>,
    enough: AtomicBool,
}

/// Feeds broken input until the time is over; 1 when something was found.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let program = gpupool_dist::given_or_built()?.join("bin/gpupool");
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..));
    println!("seed {seed}, {} s", options.seconds);
    let limit = Rlimit { current: Some(MOST_MEMORY), ..getrlimit(Resource::As) };
    setrlimit(Resource::As, limit).context("cannot limit the memory of what is started")?;
    let dumps = dumps::all();
    for dump in &dumps {
        is_read_as_meant(&program, dump)?;
    }
    let hunt = Hunt {
        program: &program,
        dumps: &dumps,
        seed,
        end: Instant::now() + Duration::from_secs(options.seconds),
        next: AtomicU64::new(0),
        answered: Default::default(),
        findings: Mutex::default(),
        enough: AtomicBool::new(false),
    };
    let workers = std::thread::available_parallelism()?.get();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(|| hunt.go())).collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| anyhow!("a worker panicked"))?)
    })?;
    hunt.conclude()
}

/// The unbroken dumps must have their verdicts: else nothing that is found out with them means anything.
fn is_read_as_meant(program: &Path, dump: &Dump) -> anyhow::Result<()> {
    for text in dump.forms() {
        let answer = Answer::of(program, text.as_bytes(), &[])?;
        ensure!(answer.verdict() == dump.verdict, "{text:?} is answered with {answer:?}");
    }
    Ok(())
}

impl Hunt<'_> {
    fn go(&self) -> anyhow::Result<()> {
        while Instant::now() < self.end && !self.enough.load(Relaxed) {
            let number = self.next.fetch_add(1, Relaxed);
            let input = self.input(number);
            let answer = Answer::of(self.program, &input.bytes, input.options)?;
            if let Some(count) = answer.code.and_then(|code| self.answered.get(usize::try_from(code).ok()?)) {
                count.fetch_add(1, Relaxed);
            }
            if let Some(fault) = answer.fault(&input) {
                self.found(number, fault, &input)?;
            }
        }
        Ok(())
    }

    /// The input of this number, always the same for a seed.
    fn input(&self, number: u64) -> Input {
        let mut random = Rng::with_seed(self.seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        Input::new(self.dumps, &mut random)
    }

    fn found(&self, number: u64, fault: String, input: &Input) -> anyhow::Result<()> {
        let file = saved(self.seed, number);
        fs::create_dir_all(file.parent().context("the file is in a folder")?)?;
        fs::write(&file, &input.bytes)?;
        println!("found with input {number}: {fault}");
        println!("    gpupool check-config {} {}", input.options.join(" "), file.display());
        let mut findings = self.findings.lock().map_err(|_| anyhow!("a worker panicked"))?;
        findings.push((number, fault));
        self.enough.store(findings.len() >= ENOUGH, Relaxed);
        Ok(())
    }

    fn conclude(self) -> anyhow::Result<ExitCode> {
        let findings = self.findings.into_inner().map_err(|_| anyhow!("a worker panicked"))?;
        let [well, wrong, refused] = self.answered.map(AtomicU64::into_inner);
        println!(
            "seed {}: {} inputs tried ({well} OK, {wrong} MISMATCH, {refused} unreadable), findings: {}",
            self.seed,
            self.next.into_inner(),
            findings.len()
        );
        Ok(if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Where an input that shows a fault is kept.
fn saved(seed: u64, number: u64) -> PathBuf {
    step::root().join(format!("target/fuzz/{seed}-{number}.dump"))
}

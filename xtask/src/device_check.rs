//! `cargo xtask device-check`: what a real driver does, recorded; and what the shim does on it. On a machine with one
//! GPU, in six minutes at most; on the simulated card as a rehearsal.
//!
//! A small C program (`xtask/device`) asks the driver, one section a process. This room starts it bare and under gpupool,
//! keeps its answers as a record, and compares. `docs/device-check.md` says how to run it, without a network too.

mod frameworks;
mod golden;
mod kit;
mod probe;
mod record;
mod under_gpupool;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::bail;

use crate::machine::AgentNode;
use frameworks::Frameworks;
use kit::Kit;
use probe::{Probe, SECTIONS};
use record::Record;

/// After so long nothing new is begun: all of it is to take six minutes.
const TIME: Duration = Duration::from_secs(330);

/// How many faults of one comparison are shown.
const SHOWN: usize = 12;

/// Options of `cargo xtask device-check`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// A rehearsal on the simulated card: its record is marked as such and not kept among the real ones
    #[arg(long)]
    simulated: bool,
    /// Only lay out what a machine without Rust needs, in this folder, with a script `run` to start there
    #[arg(long, value_name = "FOLDER")]
    prepare: Option<PathBuf>,
    /// Run from such a folder
    #[arg(long, value_name = "FOLDER", conflicts_with = "prepare")]
    from: Option<PathBuf>,
    /// Folder for the record [default: simgpu/golden; of a rehearsal target/device-check]
    #[arg(long, value_name = "FOLDER")]
    record: Option<PathBuf>,
    #[command(flatten)]
    frameworks: Frameworks,
}

/// Runs the check; success when all that could be run is as it should be.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let kit = match (&options.from, &options.prepare) {
        (Some(folder), _) => Kit::open(folder)?,
        (None, Some(folder)) => {
            Kit::lay_out(&gpupool_dist::given_or_built()?, folder)?;
            eprintln!("laid out in {}: start {}/run there", folder.display(), folder.display());
            return Ok(ExitCode::SUCCESS);
        }
        (None, None) => Kit::lay_out(&gpupool_dist::given_or_built()?, &kit::default_folder())?,
    };
    let folder = match &options.record {
        Some(folder) => folder.clone(),
        None if options.from.is_some() => std::env::current_dir()?,
        None if options.simulated => kit::default_folder(),
        None => golden::folder(),
    };
    let check = Check { simulated: options.simulated, start: Instant::now(), faults: Vec::new() };
    let sound = check.run(&kit, &folder, &options.frameworks)?;
    Ok(if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The rehearsal on the simulated card, as one of the project's tests.
pub(crate) fn rehearse(dist: &Path) -> anyhow::Result<()> {
    let folder = kit::default_folder();
    let kit = Kit::lay_out(dist, &folder)?;
    let check = Check { simulated: true, start: Instant::now(), faults: Vec::new() };
    if !check.run(&kit, &folder, &Frameworks::default())? {
        bail!("the rehearsal found faults");
    }
    Ok(())
}

/// One run.
struct Check {
    simulated: bool,
    start: Instant,
    faults: Vec<String>,
}

impl Check {
    fn run(mut self, kit: &Kit, folder: &Path, frameworks: &Frameworks) -> anyhow::Result<bool> {
        let state = tempfile::TempDir::with_prefix("gpupool-device-")?;
        let bare = Probe::bare(kit, self.simulated.then(|| state.path().join("cards.state")));
        let record = self.ask(&bare)?;
        let file = record.keep(folder)?;
        eprintln!("recorded{} in {}", if self.simulated { " (SIMULATED)" } else { "" }, file.display());
        record.print_summary();
        let options: &[&str] = if self.simulated { &["--simulated-cards", "1"] } else { &[] };
        let node = AgentNode::start_with(kit.folder(), options)?;
        self.compare(kit, &record, &node);
        if self.simulated {
            eprintln!("PyTorch and CuPy: not run, their runtime asks for NVIDIA's own driver");
        } else if self.in_time("PyTorch and CuPy") {
            self.faults.extend(frameworks.check(kit, &node));
        }
        for fault in &self.faults {
            eprintln!("NOT AS IT SHOULD BE: {fault}");
        }
        let seconds = self.start.elapsed().as_secs_f64();
        eprintln!("device-check: {seconds:.0} s, {} faults", self.faults.len());
        Ok(self.faults.is_empty())
    }

    /// Asks the bare driver everything; a section that fails is a fault, and the others go on.
    fn ask(&mut self, probe: &Probe<'_>) -> anyhow::Result<Record> {
        let mut record = Record::new(self.simulated, probe.section("driver")?);
        for section in SECTIONS {
            if !self.in_time(section) {
                continue;
            }
            match probe.section(section) {
                Ok(answers) => record.add(section, answers),
                Err(failure) => self.faults.push(format!("{section}: {failure:#}")),
            }
        }
        if record.is_empty() {
            bail!("the driver answered nothing: {}", self.faults.join("; "));
        }
        Ok(record)
    }

    fn compare(&mut self, kit: &Kit, record: &Record, node: &AgentNode) {
        for (name, check) in under_gpupool::CHECKS {
            if !self.in_time(name) {
                continue;
            }
            let faults = check(kit, node, record).unwrap_or_else(|failure| vec![format!("{failure:#}")]);
            match faults.len() {
                0 => eprintln!("{name}: as it should be"),
                count => eprintln!("{name}: {count} faults"),
            }
            let more = faults.len().saturating_sub(SHOWN);
            self.faults.extend(faults.into_iter().take(SHOWN).map(|fault| format!("{name}: {fault}")));
            if more > 0 {
                self.faults.push(format!("{name}: and {more} more"));
            }
        }
    }

    /// Whether there is time for one thing more; says so where there is not.
    fn in_time(&mut self, what: &str) -> bool {
        let in_time = self.start.elapsed() < TIME;
        if !in_time {
            self.faults.push(format!("{what}: not run, the time is up"));
        }
        in_time
    }
}

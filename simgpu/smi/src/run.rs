//! What the command line asks for, done.

use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::process::ExitCode;

use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use simgpu_device::Machine;

use crate::arguments::Arguments;
use crate::query::{self, OutputFormat, QueryError};
use crate::reading::{CardReading, DriverVersions};
use crate::{clock, table};

/// What this program found no answer to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SmiError {
    #[error("{0}")]
    Query(#[from] QueryError),
    #[error("No devices were found")]
    NoSuchCard,
    #[error(
        "NVIDIA-SMI couldn't find the libnvidia-ml.so.1 library; is its folder in LD_LIBRARY_PATH? ({0})"
    )]
    NoLibrary(NvmlError),
    #[error("NVIDIA-SMI has failed: {0}")]
    Nvml(#[from] NvmlError),
    #[error("{0}")]
    Simulation(#[from] simgpu_device::Error),
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
}

impl SmiError {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Query(_) => 2,
            Self::NoSuchCard => 6,
            Self::Simulation(_) | Self::Nvml(NvmlError::DriverNotLoaded) => 9,
            Self::NoLibrary(_) => 12,
            Self::Nvml(NvmlError::GpuLost) => LOST,
            Self::Nvml(_) | Self::Output(_) => 1,
        }
    }
}

/// The exit code when a card is lost: NVML's own number for it.
const LOST: u8 = 15;

/// Answers the command line.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, SmiError> {
    if arguments.help_query_gpu {
        return show(&query::card_help());
    }
    if arguments.help_query_compute_apps {
        return show(&query::process_help());
    }
    if let Some(index) = arguments.simulate_lost {
        return simulate(index, true);
    }
    if let Some(index) = arguments.simulate_recovered {
        return simulate(index, false);
    }
    let nvml =
        Nvml::builder().lib_path(OsStr::new("libnvidia-ml.so.1")).init().map_err(|error| match error {
            NvmlError::LibloadingError(_) => SmiError::NoLibrary(error),
            other => SmiError::Nvml(other),
        })?;
    let driver = DriverVersions::read(&nvml)?;
    let found = find(&nvml, &arguments.id)?;
    let page = if arguments.list {
        let line = |card: &CardReading| format!("GPU {}: {} (UUID: {})\n", card.index, card.name, card.uuid);
        found.cards.iter().map(line).collect()
    } else if !arguments.query_gpu.is_empty() {
        let format = OutputFormat::parse(&arguments.format)?;
        query::cards(&arguments.query_gpu, format, &driver, nvml.device_count()?, &found.cards)?
    } else if !arguments.query_compute_apps.is_empty() {
        query::processes(
            &arguments.query_compute_apps,
            OutputFormat::parse(&arguments.format)?,
            &found.cards,
        )?
    } else {
        table::draw(&clock::now(c"%a %b %e %H:%M:%S %Y"), "(simulated)", &driver, &found.cards)
    };
    show(&page)?;
    for index in &found.lost {
        complain(&format_args!("Unable to determine the device handle for GPU{index}: GPU is lost."));
    }
    Ok(if found.lost.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(LOST) })
}

/// The cards that were asked for.
struct FoundCards {
    cards: Vec<CardReading>,
    /// What stands for the lost ones: an index, or whatever the user wrote.
    lost: Vec<String>,
}

/// Reads the cards named by index, UUID or PCI address, or all of them.
fn find(nvml: &Nvml, wanted: &[String]) -> Result<FoundCards, SmiError> {
    let all: Vec<String> = (0..nvml.device_count()?).map(|index| index.to_string()).collect();
    let mut found = FoundCards { cards: Vec::new(), lost: Vec::new() };
    for name in if wanted.is_empty() { &all } else { wanted } {
        let reading = device(nvml, name.trim()).and_then(|device| CardReading::take(nvml, &device));
        match reading {
            Ok(card) => found.cards.push(card),
            Err(NvmlError::GpuLost) => found.lost.push(name.clone()),
            Err(NvmlError::InvalidArg | NvmlError::NotFound) => return Err(SmiError::NoSuchCard),
            Err(error) => return Err(error.into()),
        }
    }
    found.cards.sort_by_key(|card| card.index);
    Ok(found)
}

fn device<'a>(nvml: &'a Nvml, name: &str) -> Result<Device<'a>, NvmlError> {
    if let Ok(index) = name.parse() {
        nvml.device_by_index(index)
    } else if name.contains(':') {
        nvml.device_by_pci_bus_id(name)
    } else {
        nvml.device_by_uuid(name)
    }
}

/// Writes to standard output; a reader that has seen enough and gone is no error.
fn show(page: &str) -> Result<ExitCode, SmiError> {
    let mut output = io::stdout().lock();
    match output.write_all(page.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Writes a line to standard error; without a reader there, the exit code must do.
pub(crate) fn complain(what: &dyn std::fmt::Display) {
    let _ = writeln!(io::stderr(), "{what}");
}

/// Loses a simulated card, or brings it back.
fn simulate(index: usize, lost: bool) -> Result<ExitCode, SmiError> {
    let machine = Machine::open_from_env()?;
    let card = machine.card(index).ok_or(SmiError::NoSuchCard)?;
    if lost {
        card.lose();
    } else {
        card.recover();
    }
    show(&format!("GPU {index}: {} ({})\n", if lost { "lost" } else { "recovered" }, card.uuid()))
}

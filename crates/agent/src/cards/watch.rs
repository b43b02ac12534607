//! What NVML says about the cards. A thread of the agent's asks once a second.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gpupool_core::pool::CardUuid;
use nvml_wrapper::Nvml;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessUtilizationSample;

use super::{CardsError, Probe};

/// Over how long the utilisation of processes is asked for.
const PERIOD: Duration = Duration::from_secs(1);

/// Memory by process id, in bytes; `None` where NVML does not say.
pub type Processes = Vec<(u32, Option<u64>)>;

/// One look at one card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// Which card.
    pub card: CardUuid,
    /// It does not answer any more.
    pub lost: bool,
    /// Utilisation of the whole card, percent; `None` where NVML does not say.
    pub utilisation: Option<u32>,
    /// Who is on it; `None` where NVML could not say it this time.
    pub processes: Option<Processes>,
    /// Utilisation of the whole card by process id over the last second, percent; who did not use it is left out.
    /// `None` where NVML does not say.
    pub utilisation_of: Option<BTreeMap<u32, u32>>,
}

/// NVML, open.
#[derive(Debug)]
pub struct Watch {
    nvml: Nvml,
    cards: Vec<CardUuid>,
}

impl Watch {
    /// Opens NVML and finds the driver's cards in it. The second value has their NVML indices, in the driver's order.
    pub fn open(library: &Path, probe: &Probe) -> Result<(Self, Vec<u32>), CardsError> {
        let nvml = Nvml::builder()
            .lib_path(library.as_os_str())
            .init()
            .map_err(|source| CardsError::Nvml { library: library.to_owned(), source })?;
        let mut indices = Vec::new();
        for card in &probe.cards {
            let found = nvml.device_by_uuid(card.uuid.as_str()).and_then(|device| device.index());
            indices.push(found.map_err(|source| CardsError::Unknown { uuid: card.uuid.clone(), source })?);
        }
        let cards = probe.cards.iter().map(|card| card.uuid.as_str().into()).collect();
        Ok((Self { nvml, cards }, indices))
    }

    /// Looks at every card.
    pub fn look(&self) -> Vec<Look> {
        self.cards.iter().map(|card| self.look_at(card)).collect()
    }

    /// Looks only at who is on each card; `None` where NVML could not say it. That a card is lost, and nobody on it any
    /// more, is said by [`Self::look`] alone: who is told only that nobody is there would let somebody in.
    pub fn processes(&self) -> Vec<(CardUuid, Option<Processes>)> {
        let on = |card: &CardUuid| processes_of(&self.nvml.device_by_uuid(card.as_str()).ok()?);
        self.cards.iter().map(|card| (card.clone(), on(card))).collect()
    }

    fn look_at(&self, card: &CardUuid) -> Look {
        let mut look = Look {
            card: card.clone(),
            lost: false,
            utilisation: None,
            processes: None,
            utilisation_of: None,
        };
        let device = match self.nvml.device_by_uuid(card.as_str()) {
            Ok(device) => device,
            Err(failure) => return look.of_failed(&failure),
        };
        if let Err(failure) = device.memory_info() {
            return look.of_failed(&failure);
        }
        look.utilisation = device.utilization_rates().ok().map(|rates| rates.gpu);
        look.processes = processes_of(&device);
        look.utilisation_of = utilisation_of(&device);
        look
    }
}

impl Look {
    /// What a failed question tells of the card.
    fn of_failed(self, failure: &NvmlError) -> Self {
        let lost = is_loss(failure);
        // On a card that is lost nobody is any more.
        Self { lost, processes: lost.then(Vec::new), ..self }
    }
}

/// What each process used of a card since the last look.
fn utilisation_of(device: &nvml_wrapper::Device<'_>) -> Option<BTreeMap<u32, u32>> {
    let since = (SystemTime::now() - PERIOD).duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
    match device.process_utilization_stats(u64::try_from(since).unwrap_or(0)) {
        Ok(samples) => {
            let percent = |sample: ProcessUtilizationSample| (sample.pid, sample.sm_util.min(100));
            Some(samples.into_iter().map(percent).collect())
        }
        // That is how it says that nobody used it.
        Err(NvmlError::NotFound) => Some(BTreeMap::new()),
        Err(_) => None,
    }
}

/// The processes on a card, whether they compute or draw; who does both is one process. Where NVML never lists
/// processes, nobody is known to be there.
fn processes_of(device: &nvml_wrapper::Device<'_>) -> Option<Processes> {
    let mut processes = BTreeMap::new();
    for list in [device.running_compute_processes(), device.running_graphics_processes()] {
        match list {
            Ok(list) => processes.extend(list.into_iter().map(|process| match process.used_gpu_memory {
                UsedGpuMemory::Used(bytes) => (process.pid, Some(bytes)),
                UsedGpuMemory::Unavailable => (process.pid, None),
            })),
            Err(NvmlError::NotSupported | NvmlError::FailedToLoadSymbol(_)) => {}
            Err(_) => return None,
        }
    }
    Some(processes.into_iter().collect())
}

/// Device memory that a process takes on a card, in bytes, if NVML says so.
pub fn context_memory(library: &Path, card: &str, pid: u32) -> Option<u64> {
    let nvml = Nvml::builder().lib_path(library.as_os_str()).init().ok()?;
    let processes = nvml.device_by_uuid(card).ok()?.running_compute_processes().ok()?;
    let process = processes.into_iter().find(|process| process.pid == pid)?;
    match process.used_gpu_memory {
        UsedGpuMemory::Used(bytes) if bytes > 0 => Some(bytes),
        _ => None,
    }
}

/// The driver's version as NVML names it, and the cards on which somebody computes.
pub fn driver_and_busy_cards(library: &Path) -> Option<(String, BTreeSet<String>)> {
    let nvml = Nvml::builder().lib_path(library.as_os_str()).init().ok()?;
    let mut busy = BTreeSet::new();
    for index in 0..nvml.device_count().ok()? {
        let card = nvml.device_by_index(index).ok()?;
        if !card.running_compute_processes().ok()?.is_empty() {
            busy.insert(card.uuid().ok()?);
        }
    }
    Some((nvml.sys_driver_version().ok()?, busy))
}

/// A card that is gone, as opposed to a question that NVML could not answer this time.
fn is_loss(failure: &NvmlError) -> bool {
    matches!(failure, NvmlError::GpuLost | NvmlError::NotFound)
}

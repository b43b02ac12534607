//! What NVML says about the cards, once a second, from a thread of its own: a card that hangs may keep a question
//! waiting for long, and must not keep the pool waiting.

use std::path::Path;
use std::time::Duration;

use gpupool_core::pool::CardUuid;
use nvml_wrapper::Nvml;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;

use super::{CardsError, Probe};

/// How often the cards are looked at.
const PERIOD: Duration = Duration::from_secs(1);

/// One look at one card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// Which card.
    pub card: CardUuid,
    /// It does not answer any more.
    pub lost: bool,
    /// Utilisation of the whole card, percent; `None` where NVML does not say.
    pub utilisation: Option<u32>,
    /// Memory by process id, in bytes.
    pub processes: Vec<(u32, u64)>,
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

    fn look_at(&self, card: &CardUuid) -> Look {
        let mut look = Look { card: card.clone(), lost: false, utilisation: None, processes: Vec::new() };
        let device = match self.nvml.device_by_uuid(card.as_str()) {
            Ok(device) => device,
            Err(failure) => return Look { lost: is_loss(&failure), ..look },
        };
        if let Err(failure) = device.memory_info() {
            return Look { lost: is_loss(&failure), ..look };
        }
        look.utilisation = device.utilization_rates().ok().map(|rates| rates.gpu);
        let processes = device.running_compute_processes().unwrap_or_default();
        look.processes = processes
            .into_iter()
            .map(|process| match process.used_gpu_memory {
                UsedGpuMemory::Used(bytes) => (process.pid, bytes),
                UsedGpuMemory::Unavailable => (process.pid, 0),
            })
            .collect();
        look
    }

    /// Looks once a second for as long as `tell` wants to hear more.
    pub fn run(self, tell: impl Fn(Vec<Look>) -> bool + Send + 'static) -> std::io::Result<()> {
        let looking = move || {
            while tell(self.look()) {
                std::thread::sleep(PERIOD);
            }
        };
        std::thread::Builder::new().name("cards".to_owned()).spawn(looking).map(drop)
    }
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

/// A card that is gone, as opposed to a question that NVML could not answer this time.
fn is_loss(failure: &NvmlError) -> bool {
    matches!(failure, NvmlError::GpuLost | NvmlError::NotFound)
}

//! The node's cards: what the CUDA driver and NVML say about them, and the table that programs read.
//!
//! The driver is asked once, by a short-lived child (`gpupool probe-cards`): `cuInit` in the agent itself would leave
//! threads and a claim on the driver behind. NVML is asked every second, by [`watch`].

mod context_figures;
mod probe;
pub mod watch;

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use gpupool_core::pool;
use gpupool_wire::cards as wire;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use zerocopy::IntoBytes as _;

use crate::shared_memory;

pub use context_figures::ContextFigures;
pub use probe::{Probe, ProbedCard, format_uuid, parse_uuid, probe};

/// What a context is charged until it can be measured, in bytes, where the probe could not measure one.
const UNMEASURED_CONTEXT: u64 = 512 * 1024 * 1024;

/// Where the simulated driver is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SimulatedDriver {
    /// The directory with `libcuda.so.1`, `libnvidia-ml.so.1` and `nvidia-smi`.
    pub directory: PathBuf,
    /// The cards' shared state (`SIMGPU_STATE`).
    pub state: PathBuf,
}

/// Where cards and their libraries come from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Source {
    /// The directory with the simulated `libcuda.so.1`, `libnvidia-ml.so.1` and `nvidia-smi`, and the cards' shared
    /// state; `None`: the machine's own driver.
    pub simulated: Option<SimulatedDriver>,
    /// The program that answers `probe-cards`: normally the running one.
    pub prober: PathBuf,
}

impl Source {
    /// The CUDA driver's library.
    pub fn driver_library(&self) -> PathBuf {
        self.library("libcuda.so.1")
    }

    /// NVML's library.
    pub fn nvml_library(&self) -> PathBuf {
        self.library("libnvidia-ml.so.1")
    }

    fn library(&self, name: &str) -> PathBuf {
        self.simulated
            .as_ref()
            .map_or_else(|| PathBuf::from(name), |simulated| simulated.directory.join(name))
    }
}

/// Why the cards can't be read.
#[derive(Debug, Error)]
pub enum CardsError {
    /// The child that asks the driver could not be run.
    #[error("cannot run {program} probe-cards: {source}")]
    Child {
        /// The program.
        program: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The driver does not work.
    #[error(
        "the CUDA driver {library} cannot be used: {why}. Is a driver installed? Without a GPU, use --simulated-cards 2"
    )]
    PoolTask {
        /// Its library.
        library: PathBuf,
        /// What the child said.
        why: String,
    },
    /// The driver does not answer.
    #[error(
        "the CUDA driver {library} has not answered for {seconds} seconds: a card may be stuck; the kernel's log says more"
    )]
    Stuck {
        /// Its library.
        library: PathBuf,
        /// How long it was waited for.
        seconds: u64,
    },
    /// The child's answer can't be read.
    #[error("the probe's answer cannot be read: {0}")]
    Answer(String),
    /// NVML does not work.
    #[error("NVML ({library}) cannot be used: {source}")]
    Nvml {
        /// Its library.
        library: PathBuf,
        /// What it says.
        source: nvml_wrapper::error::NvmlError,
    },
    /// NVML does not know a card of the driver.
    #[error("NVML does not know card {uuid}, which the CUDA driver has: {source}")]
    Unknown {
        /// The card.
        uuid: String,
        /// What it says.
        source: nvml_wrapper::error::NvmlError,
    },
    /// The driver has no card.
    #[error("the CUDA driver has no card")]
    None,
    /// The simulated cards were made earlier, and otherwise.
    #[error(
        "the simulated cards in {state} are {found}, not {expected}: ask for {found}, or remove the file when nothing uses it any more"
    )]
    Count {
        /// How many were asked for.
        expected: usize,
        /// How many there are.
        found: usize,
        /// Their shared state.
        state: PathBuf,
    },
    /// More cards than the table holds.
    #[error("the CUDA driver has {0} cards, and gpupool serves at most {max}", max = wire::MAX_CARDS)]
    TooMany(usize),
    /// The table can't be shared.
    #[error("cannot share the card table: {0}")]
    Table(std::io::Error),
}

/// One card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardInfo {
    /// What it is known by, as NVML writes it.
    pub uuid: pool::CardUuid,
    /// The same as the wire has it.
    pub bytes: gpupool_wire::CardUuid,
    /// Its number with NVML, which people see.
    pub index: u32,
    /// The model.
    pub name: String,
    /// All of its memory in bytes.
    pub total_memory: u64,
    /// What a context is charged until it is measured, in bytes.
    pub context_reserve: u64,
}

/// The cards in the driver's order, and their table.
#[derive(Debug)]
pub struct Cards {
    infos: Vec<CardInfo>,
    table: OwnedFd,
}

impl Cards {
    /// Takes the driver's words and NVML's numbers (one for each card, in the same order).
    pub fn new(probe: &Probe, indices: &[u32]) -> Result<Self, CardsError> {
        if probe.cards.is_empty() {
            return Err(CardsError::None);
        }
        if probe.cards.len() > wire::MAX_CARDS {
            return Err(CardsError::TooMany(probe.cards.len()));
        }
        let mut table = Vec::new();
        let mut infos = Vec::new();
        let count = u32::try_from(probe.cards.len()).unwrap_or(u32::MAX);
        table.extend_from_slice(wire::TableHeader::new(count, probe.driver_version).as_bytes());
        for (card, index) in probe.cards.iter().zip(indices) {
            let bytes = parse_uuid(&card.uuid)
                .ok_or_else(|| CardsError::Answer(format!("{} is no card's UUID", card.uuid)))?;
            table.extend_from_slice(card.on_the_wire(bytes, *index).as_bytes());
            infos.push(CardInfo {
                uuid: card.uuid.as_str().into(),
                bytes,
                index: *index,
                name: card.name.clone(),
                total_memory: card.total_memory,
                context_reserve: card.context_bytes.unwrap_or(UNMEASURED_CONTEXT),
            });
        }
        let table = shared_memory::sealed_content("gpupool-cards", &table).map_err(CardsError::Table)?;
        Ok(Self { infos, table })
    }

    /// All cards.
    pub fn all(&self) -> &[CardInfo] {
        &self.infos
    }

    /// The table's descriptor, sealed: programs may have it.
    pub fn table(&self) -> &OwnedFd {
        &self.table
    }

    /// A card and its index in the table.
    pub fn find(&self, uuid: &pool::CardUuid) -> Option<(u32, &CardInfo)> {
        self.position(|card| card.uuid == *uuid)
    }

    /// A card by the wire's form of its UUID.
    pub fn find_bytes(&self, bytes: &gpupool_wire::CardUuid) -> Option<&CardInfo> {
        self.position(|card| card.bytes == *bytes).map(|(_, card)| card)
    }

    /// As the pool wants them.
    pub fn for_pool(&self) -> Vec<pool::Card> {
        self.infos.iter().map(|card| pool::Card { uuid: card.uuid.clone(), index: card.index }).collect()
    }

    fn position(&self, wanted: impl Fn(&CardInfo) -> bool) -> Option<(u32, &CardInfo)> {
        let index = self.infos.iter().position(wanted)?;
        Some((u32::try_from(index).ok()?, self.infos.get(index)?))
    }
}

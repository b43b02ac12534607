//! The simulated machine as this process sees it, with the faults ordered for it.

use simgpu_device::{Card, Error, Fault, Faults, Machine};

/// CUDA's number of the driver, unless an older one was ordered: 1000 times the major and 10 times the minor version.
const CUDA_DRIVER_VERSION: i32 = 13050;

/// The cards and the faults.
#[derive(Debug)]
pub(crate) struct SimulatedCards {
    machine: Machine,
    faults: Faults,
}

impl SimulatedCards {
    /// Opens what the environment says.
    pub(crate) fn open() -> Result<Self, Error> {
        Ok(Self { machine: Machine::open_from_env()?, faults: Faults::from_env()? })
    }

    /// How many cards there are, lost ones among them.
    pub(crate) fn count(&self) -> u32 {
        number(self.machine.card_count())
    }

    /// Card number `index`.
    pub(crate) fn card(&self, index: u32) -> Option<Card> {
        self.machine.card(usize::try_from(index).ok()?)
    }

    /// All cards, lost ones among them.
    pub(crate) fn all(&self) -> impl Iterator<Item = Card> {
        self.machine.cards()
    }

    /// The number of `cuDriverGetVersion`.
    pub(crate) fn cuda_driver_version(&self) -> i32 {
        self.faults.driver_version().unwrap_or(CUDA_DRIVER_VERSION)
    }

    /// Counts a call of an exported function; the return code that was ordered for it, if one was.
    pub(crate) fn fault_for_call(&self, function: &str) -> Option<u32> {
        match self.faults.fault_for_call(function)? {
            Fault::Answer(code) => Some(code.unsigned_abs()),
            Fault::Slow(time) => {
                std::thread::sleep(time);
                None
            }
            Fault::Lose => {
                self.all().for_each(|card| card.lose());
                None
            }
        }
    }
}

/// A card's index as NVML writes it.
pub(crate) fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

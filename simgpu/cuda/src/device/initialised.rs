//! The process after `cuInit`: the machine, the visible cards, and the process's place in the machine.

use std::{
    env,
    sync::{Mutex, OnceLock},
};

use simgpu_device::{Card, ForkMark, Machine, Process};

use crate::{
    device::{
        environment::{report, settings},
        injection, visible,
    },
    error::{CuError, CuResult},
    sync::lock,
};

/// The process after `cuInit`.
#[derive(Debug)]
pub(crate) struct Initialised {
    pub(crate) machine: Machine,
    /// The visible cards; the place is the CUDA ordinal.
    pub(crate) cards: Vec<Card>,
    mark: ForkMark,
    process: OnceLock<Process>,
    joining: Mutex<()>,
}

static INITIALISED: OnceLock<Initialised> = OnceLock::new();
static INITIALISING: Mutex<()> = Mutex::new(());

/// The process's state. Fails before `cuInit`, and in a process forked after it.
pub(crate) fn initialised() -> CuResult<&'static Initialised> {
    INITIALISED.get().filter(|state| state.mark.holds()).ok_or(CuError::NOT_INITIALIZED)
}

/// Opens the machine, chooses the visible cards and lets in whoever is to be there from the start; once for a process,
/// later calls only check for a fork.
pub(crate) fn initialise() -> CuResult {
    if settings().is_broken() {
        return Err(CuError::SYSTEM_NOT_READY);
    }
    if INITIALISED.get().is_some() {
        return initialised().map(|_| ());
    }
    if open()? {
        injection::inject();
    }
    Ok(())
}

/// Whether it was this call that did it.
fn open() -> CuResult<bool> {
    let _guard = lock(&INITIALISING);
    if INITIALISED.get().is_some() {
        return Ok(false);
    }
    let machine = Machine::open_from_env().map_err(|error| {
        report(&error.to_string());
        CuError::SYSTEM_NOT_READY
    })?;
    let order = env::var("CUDA_DEVICE_ORDER").ok();
    let cards = visible::in_cuda_order(machine.cards().collect(), order.as_deref());
    let cards = visible::visible(cards, env::var("CUDA_VISIBLE_DEVICES").ok().as_deref());
    if cards.is_empty() {
        return Err(CuError::NO_DEVICE);
    }
    let (process, joining) = (OnceLock::new(), Mutex::new(()));
    let _ = INITIALISED.set(Initialised { machine, cards, mark: ForkMark::here(), process, joining });
    Ok(true)
}

impl Initialised {
    /// The card with CUDA ordinal `device`.
    pub(crate) fn card(&self, device: i32) -> CuResult<Card> {
        usize::try_from(device)
            .ok()
            .and_then(|device| self.cards.get(device).copied())
            .ok_or(CuError::INVALID_DEVICE)
    }

    /// The process's place among those that hold memory; taken at its first use.
    pub(crate) fn process(&self) -> CuResult<Process> {
        if let Some(process) = self.process.get() {
            return Ok(*process);
        }
        let _guard = lock(&self.joining);
        if let Some(process) = self.process.get() {
            return Ok(*process);
        }
        let process = self.machine.join().map_err(|error| {
            report(&error.to_string());
            CuError::OPERATING_SYSTEM
        })?;
        Ok(*self.process.get_or_init(|| process))
    }
}

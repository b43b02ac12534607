//! The count of inits, and the one way by which every entry is answered.

use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::cards::SimulatedCards;
use crate::return_code::ReturnCode;

/// Inits not yet followed by a shutdown.
static INITS: AtomicU32 = AtomicU32::new(0);

/// The simulated cards, opened by the first init and kept: a later shutdown does not close them, because nothing
/// may close a descriptor of the state while the process holds its lock.
static CARDS: OnceLock<SimulatedCards> = OnceLock::new();

/// One more init, under the name by which it was asked for.
pub(crate) fn init(function: &str) -> u32 {
    guarded(|| {
        let cards = match CARDS.get() {
            Some(cards) => cards,
            None => open()?,
        };
        if let Some(ordered) = cards.fault_for_call(function) {
            return Ok(ordered);
        }
        INITS.fetch_add(1, Relaxed);
        Ok(0)
    })
}

/// One init less.
pub(crate) fn shutdown() -> u32 {
    guarded(|| {
        let less = INITS.fetch_update(Relaxed, Relaxed, |inits| inits.checked_sub(1));
        less.map(|_| 0).map_err(|_| ReturnCode::Uninitialized)
    })
}

/// Answers a call that needs an init before it, unless another answer was ordered.
pub(crate) fn answer(
    function: &str,
    work: impl FnOnce(&'static SimulatedCards) -> Result<(), ReturnCode>,
) -> u32 {
    guarded(|| {
        let cards = CARDS.get().filter(|_| INITS.load(Relaxed) > 0).ok_or(ReturnCode::Uninitialized)?;
        match cards.fault_for_call(function) {
            Some(ordered) => Ok(ordered),
            None => work(cards).map(|()| 0),
        }
    })
}

/// The answer of everything that simulated cards lack.
pub(crate) fn not_supported(function: &str) -> u32 {
    answer(function, |_| Err(ReturnCode::NotSupported))
}

/// Opens the machine. NVML's only word for what can go wrong is that the driver is not there, so the reason goes to
/// standard error. Two threads may both open; the state sees to it that a process counts once.
fn open() -> Result<&'static SimulatedCards, ReturnCode> {
    let cards = SimulatedCards::open().map_err(|error| {
        // A program without a standard error has no reader for it.
        let _ = writeln!(std::io::stderr(), "simulated NVML: {error}");
        ReturnCode::DriverNotLoaded
    })?;
    Ok(CARDS.get_or_init(|| cards))
}

/// No panic gets past here into the caller's C.
fn guarded(work: impl FnOnce() -> Result<u32, ReturnCode>) -> u32 {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(code)) => code,
        Ok(Err(code)) => code as u32,
        Err(_) => ReturnCode::Unknown as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_unknown_error() {
        assert_eq!(guarded(|| std::panic::panic_any("a defect")), ReturnCode::Unknown as u32);
        assert_eq!(guarded(|| Err(ReturnCode::GpuIsLost)), 15);
        assert_eq!(guarded(|| Ok(0)), 0);
    }
}

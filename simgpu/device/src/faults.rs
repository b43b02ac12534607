//! Faults to order: `SIMGPU_FAULTS`, read once per process by each library. A list of orders, parted by commas:
//!
//! | order | what happens |
//! |---|---|
//! | `cuMemAlloc_v2=2` | every call of that exported function answers this code and does nothing else |
//! | `cuMemAlloc_v2=2@3` | the third call does (counted per process from 1) |
//! | `cuLaunchKernel=lose@5` | at the fifth call every card is lost for the whole machine, then the call goes on |
//! | `cuCtxCreate_v4=slow:100ms` | the call waits first |
//! | `driver=11040` | the driver is that old: `cuGetProcAddress` does not find newer entry points |
//! | `extra=cuFutureCall` | a newer driver: `cuGetProcAddress` finds that name too; calling it does nothing and succeeds |
//!
//! Orders for `nvml…` names are the NVML library's.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use crate::error::Error;

/// What a call has to suffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Do nothing and answer this code.
    Answer(i32),
    /// Wait this long first, then go on as usual.
    Slow(Duration),
    /// Lose every card of the machine, then go on.
    Lose,
}

#[derive(Debug)]
struct FaultOrder {
    fault: Fault,
    /// Only this call, counted from 1; `None` means every call.
    call: Option<u64>,
}

#[derive(Debug, Default)]
struct CallFaults {
    orders: Vec<FaultOrder>,
    calls: AtomicU64,
}

/// The faults ordered for this process. Written as a list: `cuMemAlloc_v2=2@3` (the third call answers 2),
/// `cuInit=100` (every call answers 100), `cuLaunchKernel=lose@5`, `cuCtxCreate_v4=slow:100ms`, `driver=11040` (pretend
/// that older driver), `extra=cuFutureCall` (pretend that newer name).
#[derive(Debug, Default)]
pub struct Faults {
    entries: HashMap<String, CallFaults>,
    driver: Option<i32>,
    extra: Vec<String>,
}

impl Faults {
    /// Reads `SIMGPU_FAULTS`; nothing set means no faults. Fails when the text can't be understood.
    pub fn from_env() -> Result<Self, Error> {
        std::env::var("SIMGPU_FAULTS").map_or_else(|_| Ok(Self::default()), |text| Self::parse(&text))
    }

    /// Reads a list in the form of `SIMGPU_FAULTS`; fails when it can't be understood.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut faults = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            faults.add(part).ok_or_else(|| Error::Faults { text: part.to_owned() })?;
        }
        Ok(faults)
    }

    fn add(&mut self, part: &str) -> Option<()> {
        let (name, what) = part.split_once('=')?;
        if name == "driver" {
            self.driver = Some(what.parse().ok()?);
            return Some(());
        }
        if name == "extra" {
            self.extra.push(what.to_owned());
            return Some(());
        }
        let (what, call) = match what.split_once('@') {
            Some((what, call)) => (what, Some(call.parse().ok().filter(|&call| call > 0)?)),
            None => (what, None),
        };
        let fault = match what.strip_prefix("slow:") {
            Some(time) => Fault::Slow(parse_duration(time)?),
            None if what == "lose" => Fault::Lose,
            None => Fault::Answer(what.parse().ok()?),
        };
        self.entries.entry(name.to_owned()).or_default().orders.push(FaultOrder { fault, call });
        Some(())
    }

    /// Whether nothing was ordered for any entry point.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The driver version to pretend, if one was ordered (1000 × major + 10 × minor).
    pub const fn driver_version(&self) -> Option<i32> {
        self.driver
    }

    /// Whether a newer driver was ordered that knows this name.
    pub fn knows_extra(&self, name: &str) -> bool {
        self.extra.iter().any(|extra| extra == name)
    }

    /// Counts a call of the exported function `name` and says what it has to suffer.
    pub fn fault_for_call(&self, name: &str) -> Option<Fault> {
        let entry = self.entries.get(name)?;
        let call = entry.calls.fetch_add(1, Relaxed) + 1;
        entry
            .orders
            .iter()
            .find(|order| order.call.is_none_or(|wanted| wanted == call))
            .map(|order| order.fault)
    }
}

/// Reads a time as `SIMGPU_FAULTS` and `SIMGPU_KERNEL_TIME` have it: `100ns`, `20us`, `5ms`, `2s`, or `0`.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let nanoseconds = match unit.trim() {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "" if number == 0 => 1,
        _ => return None,
    };
    number.checked_mul(nanoseconds).map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_numbered_order_strikes_that_call_only() {
        let faults = Faults::parse("cuMemAlloc_v2=2@3,cuInit=100").unwrap();
        let struck: Vec<_> = (0..4).map(|_| faults.fault_for_call("cuMemAlloc_v2")).collect();
        assert_eq!(struck, [None, None, Some(Fault::Answer(2)), None]);
        assert_eq!(faults.fault_for_call("cuInit"), Some(Fault::Answer(100)));
        assert_eq!(faults.fault_for_call("cuInit"), Some(Fault::Answer(100)));
        assert_eq!(faults.fault_for_call("cuMemFree_v2"), None);
    }

    #[test]
    fn slowness_and_an_older_driver_can_be_ordered() {
        let faults = Faults::parse(" cuCtxCreate=slow:100ms , driver=11040").unwrap();
        assert_eq!(faults.fault_for_call("cuCtxCreate"), Some(Fault::Slow(Duration::from_millis(100))));
        assert_eq!(faults.driver_version(), Some(11040));
    }

    #[test]
    fn a_loss_and_a_name_of_the_future_can_be_ordered() {
        let faults = Faults::parse("cuLaunchKernel=lose@2,extra=cuFuture").unwrap();
        let struck: Vec<_> = (0..3).map(|_| faults.fault_for_call("cuLaunchKernel")).collect();
        assert_eq!(struck, [None, Some(Fault::Lose), None]);
        assert!(faults.knows_extra("cuFuture") && !faults.knows_extra("cuPast"));
    }

    #[test]
    fn nonsense_is_refused_with_the_part_that_is_wrong() {
        for text in ["cuInit", "cuInit=x", "cuInit=2@0", "cuInit=slow:5", "driver=new"] {
            assert!(Faults::parse(text).unwrap_err().to_string().contains(&format!("`{text}`")));
        }
    }
}

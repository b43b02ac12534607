//! How long a launch keeps the card busy: `SIMGPU_KERNEL_TIME`, a list of figures, parted by commas.
//!
//! `20us` is for every launch (without a setting it is 1 ms), `grid:2us` for every block of its grid, `wave:50us` for
//! as many blocks as the card holds at a time; `name=…` is a kernel's own.

use std::collections::HashMap;

use simgpu_device::parse_duration;

/// One figure of the setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cost {
    /// The whole launch.
    Launch(u64),
    /// Every block of the grid.
    Block(u64),
    /// As many blocks as the card holds at a time: few blocks take as long as a card full of them.
    Wave(u64),
}

impl Cost {
    /// `5ms`, `grid:2us` or `wave:50us`.
    fn parse(text: &str) -> Option<Self> {
        let (kind, time) = text.trim().split_once(':').unwrap_or(("", text));
        let nanoseconds = u64::try_from(parse_duration(time)?.as_nanos()).ok()?;
        match kind {
            "" => Some(Self::Launch(nanoseconds)),
            "grid" => Some(Self::Block(nanoseconds)),
            "wave" => Some(Self::Wave(nanoseconds)),
            _ => None,
        }
    }

    fn of(self, blocks: u64, resident: impl FnOnce() -> u64) -> u64 {
        match self {
            Self::Launch(time) => time,
            Self::Block(time) => time.saturating_mul(blocks),
            Self::Wave(time) => time.saturating_mul(blocks.div_ceil(resident().max(1))),
        }
    }
}

/// Device time of launches, by kernel name.
#[derive(Debug)]
pub(crate) struct KernelTime {
    default: Cost,
    by_name: HashMap<String, Cost>,
}

impl Default for KernelTime {
    /// A millisecond for every launch.
    fn default() -> Self {
        Self { default: Cost::Launch(1_000_000), by_name: HashMap::new() }
    }
}

impl KernelTime {
    /// Reads a list like `20us`, `grid:2us`, `wave:50us`, `name=5ms,*=20us`; the part that can't be understood
    /// otherwise.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut time = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, cost) = part.split_once('=').unwrap_or(("*", part));
            let cost = Cost::parse(cost).ok_or_else(|| part.to_owned())?;
            if name.trim() == "*" {
                time.default = cost;
            } else {
                time.by_name.insert(name.trim().to_owned(), cost);
            }
        }
        Ok(time)
    }

    /// Nanoseconds of device time of a launch of `blocks` blocks of the kernel `name`; `resident` says how many of them
    /// the card holds at a time.
    pub(crate) fn of(&self, name: &str, blocks: u64, resident: impl FnOnce() -> u64) -> u64 {
        let cost = if self.by_name.is_empty() { self.default } else { self.cost_of(name) };
        cost.of(blocks, resident)
    }

    fn cost_of(&self, name: &str) -> Cost {
        self.by_name.get(name).copied().unwrap_or(self.default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernels_own_time_beats_the_default() {
        let time = KernelTime::parse("gemm=5ms, *=20us,scan=grid:2us,sort=wave:1ms").unwrap();
        let of = |name, blocks| time.of(name, blocks, || 216);
        assert_eq!(of("gemm", 7), 5_000_000);
        assert_eq!(of("other", 7), 20_000);
        assert_eq!(of("scan", 7), 14_000);
        assert_eq!([1, 216, 217].map(|blocks| of("sort", blocks)), [1_000_000, 1_000_000, 2_000_000]);
    }

    #[test]
    fn without_a_setting_a_launch_takes_a_millisecond() {
        assert_eq!(KernelTime::parse("").unwrap().of("k", 1000, || 1), 1_000_000);
        assert_eq!(KernelTime::parse("0").unwrap().of("k", 1000, || 1), 0);
    }

    #[test]
    fn nonsense_is_named() {
        assert_eq!(KernelTime::parse("1ms,k=fast").unwrap_err(), "k=fast");
        assert_eq!(KernelTime::parse("block:1ms").unwrap_err(), "block:1ms");
    }
}

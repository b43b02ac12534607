//! `cargo xtask bench`: the design's bars, measured; each line prints both sides of the same run.
//!
//! Nothing here is a test: a missed bar is printed as missed. All figures are of the simulated driver.

mod check_config;
mod control;
mod extender;
pub(crate) mod machine;
mod node_dump;
mod pool;
mod report;
mod shim;
mod start;
mod turns;

use std::path::Path;

use clap::ValueEnum;

use crate::dist;

/// A group of measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Group {
    /// Judging dumps of nodes, beside jq and Python.
    CheckConfig,
    /// `gpupool control` on 5,000 nodes, all relabelled at once.
    Control,
    /// The scheduler extender's filter, with 5,000 nodes and 50,000 pods.
    Extender,
    /// Events a second of the pool, with 1,000 pods on 16 cards.
    Pool,
    /// What the shim adds to a call: launches, allocations, looking up entry points.
    Shim,
    /// Starting programs: `true` under the shim, `gpupool run -- true`, 32 contexts at once.
    Start,
    /// Grants and hand-overs between programs.
    Turns,
}

impl Group {
    fn measure(self, dist: &Path) -> anyhow::Result<()> {
        match self {
            Self::CheckConfig => check_config::measure(dist),
            Self::Control => control::measure(dist),
            Self::Extender => extender::measure(),
            Self::Pool => pool::measure(),
            Self::Shim => shim::measure(dist),
            Self::Start => start::measure(dist),
            Self::Turns => turns::measure(dist),
        }
    }
}

/// Measures the named groups, or all.
pub(crate) fn run(groups: &[Group]) -> anyhow::Result<()> {
    let dist = dist::build()?;
    report::head(&machine::describe());
    let wanted = |group: Group| groups.is_empty() || groups.contains(&group);
    for group in Group::value_variants().iter().copied().filter(|group| wanted(*group)) {
        group.measure(&dist)?;
    }
    Ok(())
}

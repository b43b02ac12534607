//! `cargo xtask bench`: the design's bars, measured; each line prints both sides of the same run.
//!
//! Nothing here is a test: a missed bar is printed as missed. All figures are of the simulated driver.

mod admission;
mod check_config;
mod control;
mod core_limit;
mod extender;
mod node_dump;
mod pool;
mod report;
mod sharing;
mod shim;
mod start;
mod turns;

use std::path::Path;

use clap::ValueEnum;

use crate::machine;
pub(crate) use core_limit::Length;

/// A group of measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Group {
    /// Answers to the API server about pods that share.
    Admission,
    /// Judging dumps of nodes, beside jq and Python.
    CheckConfig,
    /// `gpupool control` on 5,000 nodes, all relabelled at once.
    Control,
    /// How well pods keep to their core limits, alone and beside each other, with short and long kernels.
    CoreLimit,
    /// The scheduler extender's filter, with 5,000 nodes and 50,000 pods.
    Extender,
    /// Events a second of the pool, with 1,000 pods on 16 cards.
    Pool,
    /// Sharing on a cluster with real kubelets (needs root), and many groups on one agent: admission, hand-overs between
    /// pods, an idle agent.
    Sharing,
    /// What the shim adds to a call: launches, allocations, looking up entry points; then what `core-limit` measures.
    Shim,
    /// Starting programs: `true` under the shim, `gpupool run -- true`, 32 contexts at once.
    Start,
    /// Grants and hand-overs between programs.
    Turns,
}

impl Group {
    fn measure(self, dist: &Path, length: &core_limit::Length) -> anyhow::Result<()> {
        match self {
            Self::Admission => admission::measure(),
            Self::CheckConfig => check_config::measure(dist),
            Self::Control => control::measure(dist),
            Self::CoreLimit => core_limit::measure(dist, length),
            Self::Extender => extender::measure(),
            Self::Pool => pool::measure(),
            Self::Sharing => sharing::measure(dist, length.short),
            Self::Shim => {
                shim::measure(dist)?;
                core_limit::measure(dist, length)
            }
            Self::Start => start::measure(dist),
            Self::Turns => turns::measure(dist),
        }
    }
}

/// Measures the named groups, or all.
pub(crate) fn run(groups: &[Group], length: &core_limit::Length) -> anyhow::Result<()> {
    let given = std::env::var_os("GPUPOOL_DIST").is_some();
    // What is installed is measured, not the quicker build of the tests.
    let dist = if given { gpupool_dist::given_or_built()? } else { gpupool_dist::build()? };
    report::head(&machine::describe());
    if given {
        report::note(&format!("programs of {}, however they were built", dist.display()));
    }
    // The core limit is part of what is measured of the shim.
    let wanted = |group: Group| match group {
        Group::CoreLimit => groups.contains(&group) && !groups.contains(&Group::Shim),
        _ => groups.is_empty() || groups.contains(&group),
    };
    for group in Group::value_variants().iter().copied().filter(|group| wanted(*group)) {
        group.measure(&dist, length)?;
    }
    Ok(())
}

//! Sharing as a cluster has it, with real kubelets and simulated cards: what admission adds to the creation of a pod,
//! how soon the next pod has a card, what an agent takes while nothing happens.

mod admission;
mod groups;
mod hand_overs;
mod idle;
mod process;
mod stage;

use std::path::Path;

use super::report::{self, Figure, Line};
use crate::setup;
use stage::Stage;

/// How much is measured.
#[derive(Debug)]
struct Size {
    /// Pods created, of each side.
    created: usize,
    /// Hand-overs after an exit.
    exits: usize,
    /// Hand-overs after a deletion.
    deletions: usize,
    /// Idle pods on one node. A kubelet takes 110.
    pods: usize,
    /// Groups on one agent without a cluster.
    groups: usize,
}

const WHOLE: Size = Size { created: 200, exits: 100, deletions: 30, pods: 100, groups: 500 };
const SHORT: Size = Size { created: 50, exits: 20, deletions: 5, pods: 20, groups: 100 };

/// Measures without a cluster first; what needs one needs root.
pub(crate) fn measure(dist: &Path, short: bool) -> anyhow::Result<()> {
    let size = if short { SHORT } else { WHOLE };
    groups::measure(dist, size.groups)?;
    if !rustix::process::geteuid().is_root() {
        report::skipped("sharing on a cluster", "nodes with a kubelet need root");
        return Ok(());
    }
    setup::provide(setup::NODES)?;
    let stage = Stage::start(dist)?;
    admission::measure(&stage, size.created)?;
    hand_overs::after_exits(&stage, size.exits)?;
    hand_overs::after_deletions(&stage, size.deletions)?;
    idle::measure(&stage, size.pods)?;
    stage.end()
}

/// Prints the middle and the last percent of samples in nanoseconds, of both sides or of ours alone.
fn print_percentiles(what: &str, mut bare: Option<Vec<f64>>, mut ours: Vec<f64>) {
    for (name, percent) in [("p50", 50), ("p99", 99)] {
        let bare = bare.as_mut().map(|samples| Figure::Nanoseconds(report::percentile(samples, percent)));
        report::print(&Line {
            what: format!("{what}, {name}"),
            bare: bare.unwrap_or(Figure::None),
            ours: Figure::Nanoseconds(report::percentile(&mut ours, percent)),
            bar: None,
        });
    }
}

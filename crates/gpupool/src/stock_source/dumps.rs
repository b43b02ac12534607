//! The stock from two dumps.

use std::path::Path;

use anyhow::Context as _;
use gpupool_core::stock::{Stock, StockPod};
use gpupool_dump::stock::{read_nodes, read_pods};

/// How to save what is missing in a dump of pods, as the end of a sentence.
pub(super) const PODS_DUMP: &str = "dump: save it with `kubectl get pods -A -o json`";

/// The two dumps, where there is no way to a cluster.
#[cfg(not(feature = "kubernetes"))]
#[derive(Debug, clap::Args)]
pub(crate) struct StockArgs {
    /// A dump of the nodes (`kubectl get nodes -o json`); `-` reads standard input
    #[arg(long, value_name = "FILE")]
    nodes: std::path::PathBuf,
    /// A dump of the pods (`kubectl get pods -A -o json`); `-` reads standard input
    #[arg(long, value_name = "FILE")]
    pods: std::path::PathBuf,
}

#[cfg(not(feature = "kubernetes"))]
impl StockArgs {
    /// Reads nodes and pods and takes stock. `for_each_pod` is called with every pod.
    pub(crate) fn stock(&self, for_each_pod: impl FnMut(&StockPod)) -> anyhow::Result<Stock> {
        read(&self.nodes, &self.pods, for_each_pod)
    }

    /// What the pods were read from, as the end of a sentence.
    #[allow(clippy::unused_self, reason = "where there is a way to a cluster, it depends on the arguments")]
    pub(crate) const fn source(&self) -> &'static str {
        PODS_DUMP
    }
}

/// Reads nodes and pods from two files, one of which may be standard input.
pub(super) fn read(
    nodes: &Path,
    pods: &Path,
    mut for_each_pod: impl FnMut(&StockPod),
) -> anyhow::Result<Stock> {
    anyhow::ensure!(
        nodes.as_os_str() != "-" || pods.as_os_str() != "-",
        "standard input can be one of the dumps, not both"
    );
    let mut found = Vec::new();
    gpupool_dump::open(nodes)
        .and_then(|dump| read_nodes(dump, |node| found.push(node)))
        .with_context(|| nodes.display().to_string())?;
    let mut stock = Stock::of(found);
    gpupool_dump::open(pods)
        .and_then(|dump| {
            read_pods(dump, |pod| {
                for_each_pod(&pod);
                stock.add(&pod);
            })
        })
        .with_context(|| pods.display().to_string())?;
    Ok(stock)
}

//! A cluster's GPU stock from two dumps: its nodes and its pods.

mod node;
mod pod;

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use gpupool_core::stock::{Pod, Stock};

use crate::dump;

/// Where the dumps are.
#[derive(Debug, Args)]
pub(crate) struct DumpArgs {
    /// A dump of the nodes (`kubectl get nodes -o json`); `-` reads standard input
    #[arg(long, value_name = "FILE")]
    nodes: PathBuf,
    /// A dump of the pods (`kubectl get pods -A -o json`); `-` reads standard input
    #[arg(long, value_name = "FILE")]
    pods: PathBuf,
}

impl DumpArgs {
    /// Reads both dumps and takes stock. `look` sees every pod.
    pub(crate) fn stock(&self, mut look: impl FnMut(&Pod)) -> anyhow::Result<Stock> {
        anyhow::ensure!(
            self.nodes.as_os_str() != "-" || self.pods.as_os_str() != "-",
            "standard input can be one of the dumps, not both"
        );
        let mut nodes = Vec::new();
        dump::read::<node::NodeShape>(&self.nodes, &mut |node| {
            nodes.push(node.into_node()?);
            Ok(())
        })
        .with_context(|| self.nodes.display().to_string())?;
        let mut stock = Stock::of(nodes);
        dump::read::<pod::PodShape>(&self.pods, &mut |object| {
            let pod = object.into_pod()?;
            look(&pod);
            stock.add(&pod);
            Ok(())
        })
        .with_context(|| self.pods.display().to_string())?;
        Ok(stock)
    }
}

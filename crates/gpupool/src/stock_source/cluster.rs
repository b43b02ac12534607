//! The stock from a cluster, unless two dumps are given.

use std::path::PathBuf;

use gpupool_control::{ListedKind, list};
use gpupool_core::stock::{Stock, StockPod};
use gpupool_dump::stock::{read_nodes, read_pods};

use super::dumps;
use crate::cluster_access::ClusterArgs;

/// Where nodes and pods come from.
#[derive(Debug, clap::Args)]
pub(crate) struct StockArgs {
    /// A dump of the nodes (`kubectl get nodes -o json`) instead of a cluster; `-` reads standard input
    #[arg(long, value_name = "FILE", requires = "pods", conflicts_with_all = ["kubeconfig", "context"])]
    nodes: Option<PathBuf>,
    /// A dump of the pods (`kubectl get pods -A -o json`) instead of a cluster; `-` reads standard input
    #[arg(long, value_name = "FILE", requires = "nodes", conflicts_with_all = ["kubeconfig", "context"])]
    pods: Option<PathBuf>,
    #[command(flatten)]
    cluster: ClusterArgs,
}

impl StockArgs {
    /// Reads nodes and pods and takes stock. `for_each_pod` is called with every pod.
    pub(crate) fn stock(&self, for_each_pod: impl FnMut(&StockPod)) -> anyhow::Result<Stock> {
        match (&self.nodes, &self.pods) {
            (Some(nodes), Some(pods)) => dumps::read(nodes, pods, for_each_pod),
            _ => self.read_cluster(for_each_pod),
        }
    }

    /// What the pods were read from, as the end of a sentence.
    pub(crate) const fn source(&self) -> &'static str {
        if self.nodes.is_some() { dumps::PODS_DUMP } else { "cluster" }
    }

    fn read_cluster(&self, mut for_each_pod: impl FnMut(&StockPod)) -> anyhow::Result<Stock> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let client = self.cluster.access().connect().await?;
            let mut nodes = Vec::new();
            list(&client, ListedKind::Nodes, |page| read_nodes(page.as_bytes(), |node| nodes.push(node)))
                .await?;
            let mut stock = Stock::of(nodes);
            list(&client, ListedKind::Pods, |page| {
                read_pods(page.as_bytes(), |pod| {
                    for_each_pod(&pod);
                    stock.add(&pod);
                })
            })
            .await?;
            Ok(stock)
        })
    }
}

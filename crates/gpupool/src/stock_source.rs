//! Where `inventory` and `explain` take a cluster's stock from: the cluster itself, or two dumps of its nodes and pods.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use gpupool_control::{Listed, list};
use gpupool_core::stock::{Stock, StockPod};
use gpupool_dump::stock::{read_nodes, read_pods};

use crate::cluster_access::ClusterArgs;

/// Where nodes and pods come from: two dumps, or else a cluster.
#[derive(Debug, Args)]
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
            (Some(nodes), Some(pods)) => read_dumps(nodes, pods, for_each_pod),
            _ => self.read_cluster(for_each_pod),
        }
    }

    /// What nodes and pods were read from, as part of a sentence.
    pub(crate) fn source(&self) -> &'static str {
        if self.nodes.is_some() { "dump: save it with `kubectl get pods -A -o json`" } else { "cluster" }
    }

    fn read_cluster(&self, mut for_each_pod: impl FnMut(&StockPod)) -> anyhow::Result<Stock> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let client = self.cluster.access().connect().await?;
            let mut nodes = Vec::new();
            list(&client, Listed::Nodes, |page| read_nodes(page.as_bytes(), |node| nodes.push(node))).await?;
            let mut stock = Stock::of(nodes);
            list(&client, Listed::Pods, |page| {
                read_pods(page.as_bytes(), |pod| count_in(&pod, &mut stock, &mut for_each_pod))
            })
            .await?;
            Ok(stock)
        })
    }
}

fn read_dumps(nodes: &Path, pods: &Path, mut for_each_pod: impl FnMut(&StockPod)) -> anyhow::Result<Stock> {
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
        .and_then(|dump| read_pods(dump, |pod| count_in(&pod, &mut stock, &mut for_each_pod)))
        .with_context(|| pods.display().to_string())?;
    Ok(stock)
}

fn count_in(pod: &StockPod, stock: &mut Stock, for_each_pod: &mut impl FnMut(&StockPod)) {
    for_each_pod(pod);
    stock.add(pod);
}

//! The options that say which cluster is meant, for every subcommand that talks to one.

use std::path::PathBuf;

use gpupool_control::ApiServerAccess;

/// Which cluster, and as whom.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct ClusterArgs {
    /// The kubeconfig [default: KUBECONFIG, ~/.kube/config, or in a pod its service account]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

impl ClusterArgs {
    /// How to get there.
    pub(crate) fn access(&self) -> ApiServerAccess {
        ApiServerAccess { kubeconfig: self.kubeconfig.clone(), context: self.context.clone() }
    }
}

//! How this process reaches the API server.

use std::path::PathBuf;
use std::time::Duration;

use kube::config::{Config, InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError};

/// After this long without an answer to a connection attempt, the next one is tried.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Which cluster, and as whom.
#[derive(Clone, Debug, Default)]
pub struct ApiServerAccess {
    /// A kubeconfig file; else `KUBECONFIG`, else `~/.kube/config`, else the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// A context of that file; else its current one.
    pub context: Option<String>,
}

/// Why there is no way to the API server. Nothing has been asked of it yet.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The file that was named is no usable kubeconfig.
    #[error("cannot use the kubeconfig {path}: {source}")]
    Kubeconfig {
        /// Which file, or how it was looked for.
        path: String,
        /// What is wrong with it.
        source: KubeconfigError,
    },
    /// No file was named, and there is none in the usual places and no service account.
    #[error("no cluster to talk to: {0}; name a kubeconfig with --kubeconfig")]
    Nowhere(#[from] InferConfigError),
    /// The configuration does not make a client.
    #[error("cannot make a client for the cluster: {0}")]
    Client(#[from] kube::Error),
}

impl ApiServerAccess {
    /// Makes a client. Sends nothing yet.
    pub async fn connect(&self) -> Result<kube::Client, ConnectError> {
        // Another part of the process may have installed it already; there is only ring, so it is the same one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut config = self.config().await?;
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        Ok(kube::Client::try_from(config)?)
    }

    async fn config(&self) -> Result<Config, ConnectError> {
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        match (&self.kubeconfig, &self.context) {
            (Some(path), _) => {
                let broken = |source| ConnectError::Kubeconfig { path: path.display().to_string(), source };
                let file = Kubeconfig::read_from(path).map_err(broken)?;
                Config::from_custom_kubeconfig(file, &options).await.map_err(broken)
            }
            (None, Some(context)) => {
                let path = format!("of the environment, context {context}");
                let broken = |source| ConnectError::Kubeconfig { path, source };
                Config::from_kubeconfig(&options).await.map_err(broken)
            }
            (None, None) => Ok(Config::infer().await?),
        }
    }
}

//! A cluster of the proving ground with gpupool installed from its chart: what the walk-throughs run on, and what
//! `cargo xtask cluster up --cards` gives a person.
//!
//! It knows how gpupool is laid out and installed; what runs on it is the caller's affair. Nodes have a real kubelet
//! and simulated cards, so all of this needs root.

mod error;
mod images;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gpupool_testbed::{CDI_DEVICE, Cluster, DRIVER, KubeletNode, STATE, SimulatedCards, Tool, folder_of};
use serde_json::{Value, json};

pub use error::Error;
pub use images::{GPUPOOL_IMAGE, STRESS_IMAGE};

/// The namespace of the release.
pub const NAMESPACE: &str = "gpupool-system";
/// The release.
pub const RELEASE: &str = "gpupool";
/// The address of the extender's service, in the cluster's service range.
const EXTENDER_ADDRESS: &str = "10.96.0.77";
/// How long helm waits for what it installs; a machine may be a hundred times slower than it takes.
const PATIENCE: &str = "240s";

/// A cluster before it is started.
#[derive(Debug)]
pub struct Plan {
    dist: PathBuf,
    nodes: Vec<KubeletNode>,
    values: Vec<String>,
    extender: bool,
    folder: Option<PathBuf>,
}

impl Plan {
    /// Runs what lies in `dist`, the folder that `cargo xtask dist` fills.
    pub fn new(dist: impl Into<PathBuf>) -> Self {
        Self { dist: dist.into(), nodes: Vec::new(), values: Vec::new(), extender: true, folder: None }
    }

    /// Adds a node with simulated cards, such as `2` or `2xA100-80GB`.
    #[must_use]
    pub fn node(mut self, node: KubeletNode, cards: &str) -> Self {
        self.nodes.push(node.cards(SimulatedCards::new(self.dist.join("simgpu"), cards)));
        self
    }

    /// Sets a value of the chart, as `--set` takes it.
    #[must_use]
    pub fn value(mut self, setting: impl Into<String>) -> Self {
        self.values.push(setting.into());
        self
    }

    /// Leaves the scheduler as it is.
    #[must_use]
    pub const fn without_extender(mut self) -> Self {
        self.extender = false;
        self
    }

    /// The cluster lives in this folder.
    #[must_use]
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// Starts the cluster, installs the chart, waits until all of it is ready, and tells the scheduler.
    pub fn start(self) -> Result<Installed, Error> {
        let mut builder =
            Cluster::builder().image(images::gpupool(&self.dist)?).image(images::stress(&self.dist)?);
        for node in self.nodes {
            builder = builder.kubelet_node(node);
        }
        if let Some(folder) = self.folder {
            builder = builder.folder(folder);
        }
        let mut installed = Installed { cluster: builder.start()? };
        installed.install(&self.values)?;
        if self.extender {
            installed.tell_the_scheduler()?;
        }
        Ok(installed)
    }
}

/// A running cluster with gpupool on it.
#[derive(Debug)]
pub struct Installed {
    /// The cluster.
    pub cluster: Cluster,
}

impl Installed {
    /// Installs the chart, or changes what is installed, and waits until it is ready.
    pub fn install(&self, values: &[String]) -> Result<(), Error> {
        let environment = json!([
            {"name": "LD_LIBRARY_PATH", "value": format!("{DRIVER}/lib")},
            {"name": "SIMGPU_STATE", "value": STATE},
        ]);
        let settings = json!({
            "image": {"pullPolicy": "IfNotPresent", "repository": GPUPOOL_IMAGE.0, "tag": GPUPOOL_IMAGE.1},
            "extender": {"clusterIP": EXTENDER_ADDRESS},
            "agent": {
                "driverCdi": CDI_DEVICE, "extraEnv": environment, "extraHostPaths": [DRIVER],
                "extraArgs": ["--whole-cards"],
            },
        });
        let file = tempfile::NamedTempFile::new().map_err(Error::Settings)?;
        std::fs::write(file.path(), settings.to_string()).map_err(Error::Settings)?;
        let mut arguments = vec!["upgrade", "--install", RELEASE];
        let chart = chart();
        let (chart, file) = (chart.display().to_string(), file.path().display().to_string());
        arguments.extend([
            chart.as_str(),
            "--values",
            file.as_str(),
            "--create-namespace",
            "--wait",
            "--timeout",
            PATIENCE,
        ]);
        arguments.extend(values.iter().flat_map(|value| ["--set", value.as_str()]));
        self.helm(&arguments).map(drop)
    }

    /// Removes the release.
    pub fn uninstall(&self) -> Result<(), Error> {
        self.helm(&["uninstall", RELEASE, "--wait", "--timeout", PATIENCE]).map(drop)
    }

    /// Runs helm as administrator, in gpupool's namespace.
    pub fn helm(&self, arguments: &[&str]) -> Result<String, Error> {
        let home = tempfile::tempdir().map_err(Error::Settings)?;
        let Output { status, stdout, stderr } = Command::new(folder_of(Tool::Helm)?.join("helm"))
            .args(arguments)
            .args(["--namespace", NAMESPACE])
            .env("KUBECONFIG", self.cluster.kubeconfig())
            .env("HELM_CACHE_HOME", home.path())
            .env("HELM_CONFIG_HOME", home.path())
            .env("HELM_DATA_HOME", home.path())
            .output()
            .map_err(Error::Helm)?;
        if status.success() {
            return Ok(String::from_utf8_lossy(&stdout).into_owned());
        }
        Err(Error::Refused {
            arguments: arguments.join(" "),
            said: String::from_utf8_lossy(&stderr).trim_end().to_owned(),
        })
    }

    /// Gives the scheduler the configuration of docs/scheduler-extender.md.
    pub fn tell_the_scheduler(&mut self) -> Result<(), Error> {
        let secret = ["--namespace", NAMESPACE, "get", "secret", "gpupool-control-certificate", "-o", "json"];
        let secret: Value = serde_json::from_str(&self.cluster.kubectl(secret)?).map_err(Error::Secret)?;
        let authority = secret["data"]["ca.crt"].as_str().unwrap_or_default();
        // The scheduler reads this field as bytes, which JSON writes in the same way as the Secret.
        STANDARD.decode(authority).map_err(|_| Error::NoAuthority)?;
        self.cluster.configure_scheduler(&json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "extenders": [{
                "urlPrefix": format!("https://{EXTENDER_ADDRESS}:443/extender"),
                "filterVerb": "filter", "prioritizeVerb": "prioritize", "bindVerb": "bind",
                "weight": 1, "enableHTTPS": true, "nodeCacheCapable": true, "httpTimeout": "5s",
                "tlsConfig": {"caData": authority},
                "managedResources": [
                    {"name": "alibabacloud.com/gpu-core.percentage"},
                    {"name": "alibabacloud.com/gpu-memory.percentage"},
                    {"name": "nvidia.com/gpu"},
                ],
            }],
        }))?;
        Ok(())
    }
}

/// The chart of this source tree.
pub fn chart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/helm/gpupool")
}

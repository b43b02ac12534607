//! gpupool and what it is shown with, for a cluster: its image, the published image, its chart.
//!
//! The only part of this room that knows what is being tried here; everything else offers a Kubernetes.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::{CDI_DEVICE, Cluster, DRIVER, Error, Image, STATE, SimulatedCards};

/// The image of the page on GPU sharing.
pub const PUBLISHED_IMAGE: &str = "registry-cn-wulanchabu-vpc.ack.aliyuncs.com/acs/stress:v1.0.4";

/// The namespace that gpupool is installed in.
pub const NAMESPACE: &str = "gpupool-system";

/// A fixed address of the extender's service: the scheduler is told an address, and looks up no names.
const EXTENDER: &str = "10.96.0.77";

/// gpupool as it was built from a source tree.
#[derive(Clone, Debug)]
pub struct Product {
    source: PathBuf,
    dist: PathBuf,
}

impl Product {
    /// The source tree, and the folder that `cargo xtask dist` laid out.
    pub fn new(source: impl Into<PathBuf>, dist: impl Into<PathBuf>) -> Self {
        Self { source: source.into(), dist: dist.into() }
    }

    /// Cards of the simulated driver, such as `2` or `2xA100-80GB`.
    pub fn cards(&self, cards: impl Into<String>) -> SimulatedCards {
        SimulatedCards::new(self.dist.join("simgpu"), cards)
    }

    /// The image that the chart asks for: the binary and the library that containers load.
    pub fn image(&self) -> Result<Image, Error> {
        let name = format!("gpupool.io/gpupool:{}", env!("CARGO_PKG_VERSION"));
        let image =
            Image::new(name).shell()?.file("usr/lib/libgpupool.so", self.dist.join("lib/libgpupool.so"));
        Ok(image.program("usr/bin/gpupool", self.dist.join("bin/gpupool"))?.entrypoint(["/usr/bin/gpupool"]))
    }

    /// The published image: a shell, `sleep`, a C library, and `gpu`, a small GPU program that does what its arguments
    /// say, such as `gpu init retain alloc 1073741824 sleep 60000` (milliseconds). It is compiled with gcc.
    pub fn published_image(&self) -> Result<Image, Error> {
        self.program_image(PUBLISHED_IMAGE, "gpu", "crates/shim/tests/programs/gpu.c")
    }

    /// An image under this name with a shell and one program, which is compiled with gcc from a file of the source tree.
    pub fn program_image(&self, image: &str, program: &str, source: &str) -> Result<Image, Error> {
        let source = self.source.join(source);
        let folder = tempfile::tempdir().map_err(Error::file("create a folder in", std::env::temp_dir()))?;
        let made = folder.path().join(program);
        let mut gcc = Command::new("gcc");
        gcc.args(["-O1", "-pthread", "-o"]).arg(&made).arg(&source).arg("-ldl");
        let output = gcc.output().map_err(|source| Error::Spawn { name: "gcc".to_owned(), source })?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
            return Err(Error::Compile { file: source.display().to_string(), said });
        }
        Image::new(image).shell()?.made_program(Path::new("usr/bin").join(program), &made)
    }

    /// The chart's folder.
    pub fn chart(&self) -> PathBuf {
        self.source.join("deploy/helm/gpupool")
    }

    /// The chart's values for a cluster of this room: simulated cards, an address for the extender, and figures that tests
    /// read through the API server.
    pub fn values() -> Value {
        json!({
            "extender": {"clusterIP": EXTENDER},
            "agent": {
                "driverCdi": CDI_DEVICE,
                "extraHostPaths": [DRIVER],
                "metricsHost": "0.0.0.0",
                "extraEnv": [
                    {"name": "LD_LIBRARY_PATH", "value": format!("{DRIVER}/lib")},
                    {"name": "SIMGPU_STATE", "value": STATE},
                ],
            },
        })
    }

    /// Installs the chart with [`Product::values`] and more of the caller's, waits until all of it runs, and tells the
    /// scheduler of the extender.
    ///
    /// The cluster must have been started with [`Product::image`].
    pub fn install(&self, cluster: &mut Cluster, values: &Value) -> Result<(), Error> {
        let chart = self.chart();
        cluster.install_chart("gpupool", NAMESPACE, &chart, &[&Self::values(), values])?;
        let rollout = |what: &str| {
            cluster.kubectl(["rollout", "status", what, "--namespace", NAMESPACE, "--timeout=180s"]).map(drop)
        };
        rollout("daemonset/gpupool-agent")?;
        rollout("deployment/gpupool-control")?;
        let secret = "secret/gpupool-control-scheduler";
        cluster.kubectl(["wait", "--for=create", secret, "--namespace", NAMESPACE, "--timeout=180s"])?;
        let of_secret = |key: &str| {
            let output = format!("--output=jsonpath={{.data.{key}}}");
            cluster.kubectl(["get", secret, "--namespace", NAMESPACE, &output])
        };
        let tls = json!({
            "caData": of_secret(r"ca\.crt")?,
            "certData": of_secret(r"tls\.crt")?,
            "keyData": of_secret(r"tls\.key")?,
            "serverName": format!("gpupool-extender.{NAMESPACE}.svc"),
        });
        cluster.configure_scheduler(&scheduler_configuration(&tls))
    }
}

/// What docs/scheduler-extender.md says, with certificates in place of the names of files.
fn scheduler_configuration(tls: &Value) -> Value {
    json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "extenders": [{
            "urlPrefix": format!("https://{EXTENDER}:443/extender"),
            "filterVerb": "filter",
            "prioritizeVerb": "prioritize",
            "bindVerb": "bind",
            "weight": 1,
            "enableHTTPS": true,
            "nodeCacheCapable": true,
            "httpTimeout": "5s",
            "tlsConfig": tls,
            "managedResources": [
                {"name": "alibabacloud.com/gpu-core.percentage"},
                {"name": "alibabacloud.com/gpu-memory.percentage"},
                {"name": "nvidia.com/gpu"},
            ],
        }],
    })
}

//! Control that serves admission, with the chart's webhooks at an address of this machine.

use std::net::SocketAddr;
use std::process::{Command, Output};

use gpupool_control::{CertificateLifetimes, Serving};
use gpupool_testbed::{Kubectl, Tool, folder_of};
use serde_json::{Value, json};

use crate::sandbox;
use crate::scene::{Controller, Scene, eventually};

pub(crate) const CORE: &str = "alibabacloud.com/gpu-core.percentage";
pub(crate) const MEMORY: &str = "alibabacloud.com/gpu-memory.percentage";

/// Control with its webhooks on this machine's loopback, for one test's turn.
pub(crate) struct Served {
    pub(crate) controller: Controller,
    pub(crate) address: SocketAddr,
    pub(crate) kubectl: Kubectl,
}

impl Served {
    pub(crate) async fn on(scene: &Scene<'_>) -> Self {
        Self::with(scene, CertificateLifetimes::default()).await
    }

    /// The same with other certificates.
    pub(crate) async fn with(scene: &Scene<'_>, lifetimes: CertificateLifetimes) -> Self {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let (controller, address) = Self::start(scene, "one", any, lifetimes).await;
        let served = Self { controller, address, kubectl: scene.cluster.kubectl_handle() };
        tokio::task::block_in_place(|| scene.cluster.apply(&webhooks(address))).unwrap();
        served.until_asked().await;
        served
    }

    /// A controller at an address; says which it is.
    pub(crate) async fn start(
        scene: &Scene<'_>,
        identity: &str,
        address: SocketAddr,
        lifetimes: CertificateLifetimes,
    ) -> (Controller, SocketAddr) {
        let mut serving = Serving::open(address, "gpupool-control", "default", &[]).unwrap();
        serving.settings.lifetimes = lifetimes;
        let address = serving.listener.local_addr().unwrap();
        (scene.serving(identity, sandbox(), serving).await, address)
    }

    /// Waits until the API server asks: it reads its configurations now and then, and trusts whom they say.
    pub(crate) async fn until_asked(&self) {
        eventually("the API server does not ask", async || {
            let unlabelled = pod("probe", &json!({}), &container("c", "10", "10"));
            let output = self.run(&["create", "--dry-run=server", "-f", "-"], &unlabelled);
            said(&output).contains("denied the request")
        })
        .await;
    }

    /// Runs kubectl.
    pub(crate) fn run(&self, words: &[&str], input: &Value) -> Output {
        let input = if input.is_null() { String::new() } else { input.to_string() };
        tokio::task::block_in_place(|| self.kubectl.output(words, &input)).unwrap()
    }

    /// Runs kubectl, which has to succeed; gives its standard output.
    pub(crate) fn ok(&self, words: &[&str], input: &Value) -> String {
        let output = self.run(words, input);
        assert!(output.status.success(), "{words:?}: {}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// An object as it is stored.
    pub(crate) fn get(&self, what: &str) -> Value {
        serde_json::from_str(&self.ok(&["get", what, "-o", "json"], &Value::Null)).unwrap()
    }

    /// Runs kubectl, which has to fail; gives its standard error.
    pub(crate) fn refused(&self, words: &[&str], input: &Value) -> String {
        let output = self.run(words, input);
        assert!(!output.status.success(), "{words:?} {input}: {}", String::from_utf8_lossy(&output.stdout));
        said(&output)
    }

    /// Takes the webhooks away, so that the next turn begins without.
    pub(crate) async fn end(self) {
        for kind in ["mutatingwebhookconfiguration", "validatingwebhookconfiguration"] {
            self.ok(&["delete", kind, "gpupool-control", "--ignore-not-found"], &Value::Null);
        }
        let Self { controller, kubectl, .. } = self;
        controller.end().await;
        let words = ["delete", "secret", "gpupool-control-certificate", "--ignore-not-found"];
        tokio::task::block_in_place(|| kubectl.run(words, "")).unwrap();
    }
}

/// What a program wrote to its standard error.
pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A template of the chart, rendered by helm.
pub(crate) fn chart(template: &str, namespace: &str) -> String {
    let home = tempfile::tempdir().unwrap();
    let chart = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/helm/gpupool");
    let output = Command::new(folder_of(Tool::Helm).unwrap().join("helm"))
        .args(["template", "gpupool", chart, "--namespace", namespace, "--kube-version", "1.36.3"])
        .args(["--show-only", &format!("templates/{template}")])
        .env("HELM_CACHE_HOME", home.path())
        .env("HELM_CONFIG_HOME", home.path())
        .env("HELM_DATA_HOME", home.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// The webhook configurations of the chart, at an address instead of behind a Service.
pub(crate) fn webhooks(address: SocketAddr) -> String {
    let text = chart("webhooks.yaml", "default");
    let mut items = Vec::new();
    for document in text.split("\n---").filter(|document| document.contains("kind:")) {
        let mut configuration: Value = serde_saphyr::from_str(document).unwrap();
        for webhook in configuration["webhooks"].as_array_mut().unwrap() {
            let path = webhook["clientConfig"]["service"]["path"].as_str().unwrap();
            webhook["clientConfig"] = json!({ "url": format!("https://{address}{path}") });
        }
        items.push(configuration);
    }
    json!({ "apiVersion": "v1", "kind": "List", "items": items }).to_string()
}

/// A container with a request and a limit of both percentages.
pub(crate) fn container(name: &str, request: &str, limit: &str) -> Value {
    let amounts = |amount: &str| json!({ CORE: amount, MEMORY: amount });
    json!({
        "name": name, "image": "none",
        "resources": { "requests": amounts(request), "limits": amounts(limit) },
    })
}

/// A pod of one container.
pub(crate) fn pod(name: &str, labels: &Value, container: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "labels": labels },
        "spec": { "containers": [container] },
    })
}

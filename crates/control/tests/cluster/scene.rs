//! A real cluster that the tests take in turns, controllers on it, and what they asked of it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _};
use gpupool_control::{ApiServerAccess, ClusterSettings, ControlConfig, Serving, run};
use gpupool_core::node_use::LABEL;
use gpupool_testbed::{Cluster, KwokNode};
use k8s_openapi::api::core::v1::{Event, Node as KubeNode, NodeCondition, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::client::{Body, ClientBuilder};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Config as WatchConfig, watcher};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Nothing here takes more than seconds, or a lease's 15; a machine may be many times slower.
pub(crate) const PATIENCE: Duration = Duration::from_mins(3);
pub(crate) const CARDS: &str =
    r#"{"nvidia.com/gpu": 4, "nvidia.com/GA102GL_A10": 2, "nvidia.com/NVIDIA_A10-12Q": 4}"#;
pub(crate) const GPU: &str = "nvidia.com/gpu";
pub(crate) const MODEL: &str = "nvidia.com/GA102GL_A10";
pub(crate) const PROFILE: &str = "nvidia.com/NVIDIA_A10-12Q";

/// The cluster of all tests that run at the same time; it ends with the last of them.
static SHARED: Mutex<Weak<Mutex<Cluster>>> = Mutex::new(Weak::new());

/// The cluster, for tests that hold it one after the other.
pub(crate) fn shared_cluster() -> Arc<Mutex<Cluster>> {
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let cluster = Arc::new(Mutex::new(Cluster::builder().start().unwrap()));
        *shared = Arc::downgrade(&cluster);
        cluster
    })
}

/// One test's turn on the cluster.
pub(crate) struct Scene<'a> {
    pub(crate) cluster: std::sync::MutexGuard<'a, Cluster>,
    pub(crate) client: Client,
    pub(crate) nodes: Api<KubeNode>,
    created: Vec<String>,
}

impl<'a> Scene<'a> {
    pub(crate) async fn on(cluster: &'a Mutex<Cluster>) -> Self {
        // A test that failed leaves the cluster running, and other tests do not depend on what it left.
        let cluster = cluster.lock().unwrap_or_else(PoisonError::into_inner);
        let access = ApiServerAccess { kubeconfig: Some(cluster.kubeconfig().to_owned()), context: None };
        let client = access.connect().await.unwrap();
        let nodes = Api::all(client.clone());
        let left: Vec<KubeNode> = nodes.list(&ListParams::default()).await.unwrap().items;
        let scene = Self { cluster, client, nodes, created: Vec::new() };
        let pods: Api<Pod> = Api::namespaced(scene.client.clone(), "default");
        let at_once = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        pods.delete_collection(&at_once, &ListParams::default()).await.unwrap();
        for node in left {
            scene.delete(&node.name_any()).await;
        }
        scene
    }

    /// Adds a node and waits until it is ready.
    pub(crate) fn add(&mut self, node: &KwokNode) {
        self.created.push(node.name().to_owned());
        tokio::task::block_in_place(|| self.cluster.add_node(node)).unwrap();
    }

    /// Deletes a node and waits until it is gone.
    pub(crate) async fn delete(&self, name: &str) {
        self.nodes.delete(name, &DeleteParams::default()).await.unwrap();
        eventually("a node does not go", async || self.nodes.get_opt(name).await.unwrap().is_none()).await;
    }

    /// Ends the turn: nothing of it is left on the cluster.
    pub(crate) async fn end(self) {
        for name in &self.created {
            if self.nodes.get_opt(name).await.unwrap().is_some() {
                self.delete(name).await;
            }
        }
    }

    pub(crate) async fn label(&self, name: &str, value: &str) {
        self.merge(name, &json!({ "metadata": { "labels": { LABEL: value } } })).await;
    }

    /// A change to a node's metadata by somebody.
    pub(crate) async fn merge(&self, name: &str, patch: &Value) {
        self.nodes.patch(name, &somebody(), &Patch::Merge(patch)).await.unwrap();
    }

    /// A change to a node's status by somebody.
    pub(crate) async fn merge_status(&self, name: &str, patch: &Value) {
        self.nodes.patch_status(name, &somebody(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Waits until a node is as it should be.
    pub(crate) async fn until(&self, name: &str, what: &str, holds: impl Fn(&Seen) -> bool) -> Seen {
        let started = Instant::now();
        loop {
            let seen = Seen::of(&self.nodes.get(name).await.unwrap());
            if holds(&seen) {
                return seen;
            }
            assert!(started.elapsed() < PATIENCE, "{name}: {what}; it is {seen:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until a node advertises a name and nothing else, and its condition is True.
    pub(crate) async fn until_advertises(&self, name: &str, resource: &str) -> Seen {
        let only = BTreeSet::from([resource.to_owned()]);
        self.until(name, &format!("should advertise {resource}"), |seen| {
            seen.capacity == only && seen.allocatable == only && seen.status == "True"
        })
        .await
    }

    /// Events about a node: reasons with their notes. Those about an earlier node of that name are not its own.
    pub(crate) async fn events(&self, name: &str) -> Vec<(String, String)> {
        let uid = self.nodes.get(name).await.unwrap().uid().unwrap();
        let events: Api<Event> = Api::all(self.client.clone());
        let about = format!("involvedObject.uid={uid},reportingComponent=gpupool-control");
        let events = events.list(&ListParams::default().fields(&about)).await.unwrap();
        let told = events.into_iter().map(|event| (event.reason, event.message));
        told.map(|(reason, message)| (reason.unwrap_or_default(), message.unwrap_or_default())).collect()
    }

    /// Starts a controller.
    pub(crate) async fn controller(&self, identity: &str, settings: ClusterSettings) -> Controller {
        Controller::start(self.config().await, "default", identity, settings, None)
    }

    /// Starts a controller that serves admission.
    pub(crate) async fn serving(
        &self,
        identity: &str,
        settings: ClusterSettings,
        serving: Serving,
    ) -> Controller {
        Controller::start(self.config().await, "default", identity, settings, Some(serving))
    }

    /// Starts a controller as a service account, with the rights of that alone.
    pub(crate) async fn controller_as(
        &self,
        namespace: &str,
        account: &str,
        settings: ClusterSettings,
        serving: Option<Serving>,
    ) -> Controller {
        let words = ["create", "token", account, "--namespace", namespace];
        let token = tokio::task::block_in_place(|| self.cluster.kubectl(words)).unwrap();
        let mut config = self.config().await;
        let token = Some(token.trim().to_owned().into());
        config.auth_info = AuthInfo { token, ..AuthInfo::default() };
        Controller::start(config, namespace, account, settings, serving)
    }

    async fn config(&self) -> kube::Config {
        let kubeconfig = Kubeconfig::read_from(self.cluster.kubeconfig()).unwrap();
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap()
    }

    /// Records every state of a node from now on.
    pub(crate) async fn record(&self, name: &str) -> Recording {
        Recording::start(self.nodes.clone(), name).await
    }
}

fn somebody() -> PatchParams {
    PatchParams { field_manager: Some("somebody".to_owned()), ..PatchParams::default() }
}

pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !holds().await {
        assert!(started.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

pub(crate) fn sandbox() -> ClusterSettings {
    ClusterSettings { enabled: true, ..ClusterSettings::default() }
}

/// A node without a kubelet that could be anything.
pub(crate) fn node(name: &str, label: &str) -> KwokNode {
    KwokNode::new(name).label(LABEL, label).annotation("gpupool.io/cards", CARDS)
}

/// A node's state, as far as the tests look at it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Seen {
    /// Names under nvidia.com/ that are not zero.
    pub(crate) capacity: BTreeSet<String>,
    pub(crate) allocatable: BTreeSet<String>,
    pub(crate) status: String,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) version: String,
}

impl Seen {
    pub(crate) fn of(node: &KubeNode) -> Self {
        let status = node.status.clone().unwrap_or_default();
        let names = |amounts: Option<std::collections::BTreeMap<String, _>>| {
            let amounts: std::collections::BTreeMap<
                String,
                k8s_openapi::apimachinery::pkg::api::resource::Quantity,
            > = amounts.unwrap_or_default();
            let ours = amounts
                .into_iter()
                .filter(|(name, amount)| name.starts_with("nvidia.com/") && amount.0 != "0");
            ours.map(|(name, _)| name).collect()
        };
        let condition: Option<NodeCondition> =
            status.conditions.into_iter().flatten().find(|condition| condition.type_ == "GPUNodeUseValid");
        let condition = condition.unwrap_or_default();
        Self {
            capacity: names(status.capacity),
            allocatable: names(status.allocatable),
            status: condition.status,
            reason: condition.reason.unwrap_or_default(),
            message: condition.message.unwrap_or_default(),
            version: node.resource_version().unwrap_or_default(),
        }
    }

    /// Every name that stands anywhere.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        self.capacity.union(&self.allocatable).cloned().collect()
    }
}

/// A running controller.
pub(crate) struct Controller {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
    requests: Arc<Mutex<Vec<(String, String)>>>,
}

impl Controller {
    fn start(
        config: kube::Config,
        namespace: &str,
        identity: &str,
        settings: ClusterSettings,
        serving: Option<Serving>,
    ) -> Self {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&requests);
        let listener = tower::util::MapRequestLayer::new(move |request: http::Request<Body>| {
            let path = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
            log.lock().unwrap().push((request.method().to_string(), path));
            request
        });
        let client = ClientBuilder::try_from(config).unwrap().with_layer(&listener).build();
        let (stop, stopped) = watch::channel(false);
        let config = ControlConfig {
            log_lines_lost: || 0,
            settings,
            identity: identity.to_owned(),
            lease_namespace: Some(namespace.to_owned()),
            lease_name: "gpupool-control".to_owned(),
            metrics: None,
            health: None,
            pod: None,
            serving,
        };
        Self { stop, task: tokio::spawn(run(client, config, stopped)), requests }
    }

    /// Asks it to end, as SIGTERM does, and waits for that.
    pub(crate) async fn end(self) {
        self.stop.send(true).unwrap();
        self.task.await.unwrap();
    }

    /// It is gone from one moment to the next, as after `kill -9`.
    pub(crate) async fn kill(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }

    /// Requests so far, other than watches and those about the lease.
    pub(crate) fn requests(&self) -> Vec<(String, String)> {
        let requests = self.requests.lock().unwrap();
        let counts = |path: &str| !path.contains("watch=true") && !path.contains("/leases");
        requests.iter().filter(|(_, path)| counts(path)).cloned().collect()
    }

    /// Requests so far that change a node.
    pub(crate) fn writes(&self) -> usize {
        self.requests().iter().filter(|(method, path)| method != "GET" && path.contains("/nodes/")).count()
    }
}

/// Every state that a node went through.
pub(crate) struct Recording {
    states: Arc<Mutex<Vec<Seen>>>,
    task: JoinHandle<()>,
}

impl Recording {
    async fn start(nodes: Api<KubeNode>, name: &str) -> Self {
        let states = Arc::new(Mutex::new(Vec::new()));
        let stream =
            watcher(nodes, WatchConfig::default().fields(&format!("metadata.name={name}"))).default_backoff();
        let into = Arc::clone(&states);
        let task = tokio::spawn(async move {
            let mut applied = stream.applied_objects().boxed();
            while let Ok(Some(node)) = applied.try_next().await {
                into.lock().unwrap().push(Seen::of(&node));
            }
        });
        let recording = Self { states, task };
        eventually("the watch does not begin", async || !recording.states.lock().unwrap().is_empty()).await;
        recording
    }

    /// Waits until it has seen a state, and gives all up to it.
    pub(crate) async fn until(self, last: &Seen) -> Vec<Seen> {
        let seen = async || self.states.lock().unwrap().iter().any(|state| state.version == last.version);
        eventually("the watch did not see the last state", seen).await;
        self.task.abort();
        std::mem::take(&mut self.states.lock().unwrap())
    }
}

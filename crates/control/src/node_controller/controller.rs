//! The task that owns the index.
//!
//! It takes in what the watches and the writers bring, and while this process leads it hands work items that are due to
//! writers. Nothing is decided here.

use std::time::Duration;

use futures::StreamExt as _;
use gpupool_k8s::pod::ON_NODES;
use k8s_openapi::api::core::v1::{Event as KubeEvent, Node as KubeNode, Pod as KubePod};
use kube::api::{Api, ListParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watcher};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{info, warn};

use super::finding::UseReason;
use super::index::{Index, WorkItem, WriteResult};
use super::observed::ObservedNode;
use super::plan::effective_use;
use super::pod_loads::PodLoads;
use super::writer::Writer;
use crate::api_server::{FIELD_MANAGER, WatchBackoff, bounded};
use crate::cluster_policy::ClusterPolicies;
use crate::metrics::{Metrics, NodesSnapshot, SnapshotRequest};
use crate::settings::ClusterSettings;

/// Writes under way at once. More would not be faster: the API server orders them anyway.
const AT_ONCE: usize = 16;
/// How long writes under way may take to end when the process is asked to stop.
const LAST_WRITES: Duration = Duration::from_secs(5);
/// The node controller of one process.
pub(crate) struct NodeController {
    client: kube::Client,
    writer: Writer,
    command_line: ClusterSettings,
    index: Index,
    start: Instant,
    /// Nodes of a listing that is not complete yet.
    listing: Vec<ObservedNode>,
    /// A listing has been complete once.
    synced: bool,
    policies: watch::Receiver<Option<ClusterPolicies>>,
    leading: watch::Receiver<bool>,
    /// The Events that other processes recorded before have been read.
    events_read: bool,
    writes: JoinSet<(WorkItem, WriteResult)>,
    pods: WatchedPods,
}

/// The pods as last seen.
#[derive(Default)]
struct WatchedPods {
    pods: PodLoads,
    /// The pods of a listing that is not complete yet.
    listing: PodLoads,
}

impl NodeController {
    /// A controller that has seen nothing yet. `policies` has nothing in it until it is known what the cluster says;
    /// `leading` says whether this process writes.
    pub(crate) fn new(
        client: kube::Client,
        command_line: ClusterSettings,
        identity: &str,
        metrics: Metrics,
        policies: watch::Receiver<Option<ClusterPolicies>>,
        leading: watch::Receiver<bool>,
    ) -> Self {
        Self {
            writer: Writer::new(&client, identity, metrics),
            client,
            index: Index::new(command_line.clone()),
            command_line,
            start: Instant::now(),
            listing: Vec::new(),
            synced: false,
            policies,
            leading,
            events_read: false,
            writes: JoinSet::new(),
            pods: WatchedPods::default(),
        }
    }

    /// Runs until `stop` says true, then waits for the writes under way, for a bounded time.
    pub(crate) async fn run(
        mut self,
        mut requests: mpsc::Receiver<SnapshotRequest>,
        mut stop: watch::Receiver<bool>,
    ) {
        let all: Api<KubeNode> = Api::all(self.client.clone());
        let mut nodes = watcher(all, watcher::Config::default()).backoff(WatchBackoff::default()).boxed();
        let placed: Api<KubePod> = Api::all(self.client.clone());
        let mut pods = watcher(placed, watcher::Config::default().fields(ON_NODES))
            .backoff(WatchBackoff::default())
            .boxed();
        loop {
            self.dispatch().await;
            let due = self.next_dispatch();
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => break,
                Some(event) = nodes.next() => self.take(event),
                Some(event) = pods.next() => self.take_pod(event),
                Ok(()) = self.policies.changed() => self.settings_changed(),
                Ok(()) = self.leading.changed() => self.leadership_changed(),
                Some(done) = self.writes.join_next() => self.written(done),
                Some(request) = requests.recv() => {
                    // Whoever asked may have gone, and needs no answer then.
                    let _ = request.send(self.snapshot());
                }
                () = at(due) => {}
            }
        }
        let last = async { while self.writes.join_next().await.is_some() {} };
        if timeout(LAST_WRITES, last).await.is_err() {
            warn!("some writes did not end in time");
        }
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Whether this process may write: it leads, and knows all that a decision depends on.
    fn may_write(&self) -> bool {
        *self.leading.borrow() && self.synced && self.policies.borrow().is_some()
    }

    async fn dispatch(&mut self) {
        if !self.may_write() {
            return;
        }
        if !self.events_read {
            self.events_read = true;
            self.read_recorded_events().await;
        }
        // Asked again each time: the leadership may have ended while the Events were read.
        while self.may_write() && self.writes.len() < AT_ONCE {
            let Some(item) = self.index.next_item(self.start.elapsed()) else { break };
            let writer = self.writer.clone();
            self.writes.spawn(async move {
                let result = writer.carry_out(&item).await;
                (item, result)
            });
        }
    }

    /// When the next work item may be due; `None` if only an event can make one due.
    fn next_dispatch(&self) -> Option<Instant> {
        let free = self.may_write() && self.writes.len() < AT_ONCE;
        self.index.next_due().filter(|_| free).map(|due| self.start + due)
    }

    fn take(&mut self, event: watcher::Result<watcher::Event<KubeNode>>) {
        let now = self.now();
        match event {
            Ok(watcher::Event::Init) => self.listing.clear(),
            Ok(watcher::Event::InitApply(node)) => self.listing.push(ObservedNode::of(&node)),
            Ok(watcher::Event::InitDone) => {
                let listing = std::mem::take(&mut self.listing);
                info!(nodes = listing.len(), "listed the nodes");
                self.index.reset(listing, now);
                self.synced = true;
            }
            Ok(watcher::Event::Apply(node)) => self.index.apply(ObservedNode::of(&node), now),
            Ok(watcher::Event::Delete(node)) => self.index.delete(&ObservedNode::of(&node).name),
            Err(failure) => warn!(%failure, "cannot watch the nodes; trying again"),
        }
    }

    fn take_pod(&mut self, event: watcher::Result<watcher::Event<KubePod>>) {
        let now = self.now();
        let watched = &mut self.pods;
        let changed = match event {
            Ok(watcher::Event::Init) => {
                watched.listing = PodLoads::default();
                None
            }
            Ok(watcher::Event::InitApply(pod)) => {
                watched.listing.apply(&pod);
                None
            }
            Ok(watcher::Event::InitDone) => {
                watched.pods = std::mem::take(&mut watched.listing);
                let loads = watched.pods.nodes().map(|node| (node.to_owned(), watched.pods.load(node)));
                self.index.set_loads(loads.collect(), now);
                None
            }
            Ok(watcher::Event::Apply(pod)) => watched.pods.apply(&pod),
            Ok(watcher::Event::Delete(pod)) => watched.pods.delete(&pod),
            Err(failure) => {
                warn!(%failure, "cannot watch the pods; no share policy changes until that works");
                None
            }
        };
        if let Some(node) = changed {
            let load = self.pods.pods.load(&node);
            self.index.set_load(&node, load, now);
        }
    }

    fn settings_changed(&mut self) {
        let now = self.now();
        let policies = self.policies.borrow_and_update().clone();
        if let Some(policies) = policies {
            let settings = policies.settings(&self.command_line);
            info!(
                enabled = settings.enabled,
                default = settings.default_workload.as_deref().unwrap_or("container"),
                source = ?settings.source,
                manage_operands = settings.manage_operands,
                "settings"
            );
            self.index.set_settings(settings, now);
        }
    }

    fn leadership_changed(&mut self) {
        let leads = *self.leading.borrow_and_update();
        self.events_read = false;
        if leads {
            self.index.requeue_all(self.now());
        }
    }

    fn written(&mut self, done: Result<(WorkItem, WriteResult), tokio::task::JoinError>) {
        match done {
            Ok((item, result)) => self.index.finish(&item, result, self.now()),
            Err(failure) => warn!(%failure, "a write ended badly"),
        }
    }

    /// Events outlive the process that recorded them; the next one does not record the same again.
    async fn read_recorded_events(&mut self) {
        let events: Api<KubeEvent> = Api::all(self.client.clone());
        let ours = ListParams::default().fields(&format!("reportingComponent={FIELD_MANAGER}"));
        let events = match bounded(events.list(&ours)).await {
            Ok(events) => events,
            Err(failure) => {
                warn!(%failure, "cannot read earlier Events; some may be told twice");
                return;
            }
        };
        for event in events {
            let reason =
                UseReason::ALL.into_iter().find(|known| Some(known.word()) == event.reason.as_deref());
            let object = event.involved_object;
            if let (Some(reason), Some(name), Some(uid)) = (reason, object.name, object.uid) {
                self.index.event_was_recorded(&name, &uid, reason);
            }
        }
    }

    fn snapshot(&self) -> NodesSnapshot {
        let mut snapshot = NodesSnapshot { leading: *self.leading.borrow(), ..NodesSnapshot::default() };
        snapshot.pending = i64::try_from(self.index.counts().1).unwrap_or(i64::MAX);
        for node in self.index.nodes() {
            let Some(node_use) = effective_use(node, self.index.settings()) else { continue };
            let reason =
                node.condition.as_ref().map(|condition| condition.reason.clone()).unwrap_or_default();
            *snapshot.nodes.entry((node_use.to_string(), reason)).or_default() += 1;
        }
        snapshot
    }
}

async fn at(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}

//! The node controller: watches, leadership and writes around the index.
//!
//! One task owns the index. It takes in what the watches and the writes bring, and as long as this process leads it
//! gives out what is due. Nothing is decided here.

use std::time::Duration;

use axum::Router;
use axum::routing::get;
use futures::StreamExt as _;
use gpupool_k8s::pod::ON_NODES;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event as KubeEvent, Node as KubeNode, Pod as KubePod};
use kube::api::{Api, ListParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watcher};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{info, warn};

use crate::admission;
use crate::extender::Extender;
use crate::finding::Reason;
use crate::index::{Index, Order, Outcome};
use crate::leader_label;
use crate::lease::Candidate;
use crate::metrics::{Ask, Metrics, MetricsPage, Snapshot};
use crate::observed::Node;
use crate::ownership::FIELD_MANAGER;
use crate::plan::{Cluster, effective_use};
use crate::policy::Policies;
use crate::policy_watch::{self, Pauses};
use crate::serving::Serving;
use crate::share_policy::pods::Pods;
use crate::writer::{Writer, within};

/// Writes under way at once. More would not be faster: the API server orders them anyway.
const AT_ONCE: usize = 16;
/// How long writes under way may take to end when the process is asked to stop.
const LAST_WRITES: Duration = Duration::from_secs(5);
/// Questions about figures that may wait.
const ASKS: usize = 4;

/// What the command line says.
#[derive(Debug)]
pub struct Config {
    /// Settings; those about sandbox workloads hold where there is no `ClusterPolicy`.
    pub cluster: Cluster,
    /// Who this process is. Must differ between processes of one cluster.
    pub identity: String,
    /// The namespace of the Lease; else the client's own.
    pub lease_namespace: Option<String>,
    /// The Lease by which controllers agree who of them writes.
    pub lease_name: String,
    /// The page with figures, if one is wanted.
    pub metrics: Option<MetricsPage>,
    /// This process's own pod, by its name in the client's namespace, to say there whether it leads.
    pub pod: Option<String>,
    /// The HTTPS server for admission and the scheduler, if one is wanted.
    pub serving: Option<Serving>,
}

/// Runs the controller until `stop` says true. It outlives any absence of the API server.
pub async fn run(client: kube::Client, config: Config, stop: watch::Receiver<bool>) {
    let namespace = config.lease_namespace.unwrap_or_else(|| client.default_namespace().to_owned());
    let leases: Api<Lease> = Api::namespaced(client.clone(), &namespace);
    let (candidate, leading) = Candidate::new(leases, config.lease_name, config.identity.clone());
    let (stop_candidate, candidate_stops) = watch::channel(false);
    let mut election = JoinSet::new();
    election.spawn(candidate.run(candidate_stops));

    let (policies_in, policies) = watch::channel(None);
    let mut side_tasks = JoinSet::new();
    side_tasks.spawn(policy_watch::follow(client.clone(), policies_in));
    let metrics = Metrics::new();
    let (asks_in, asks) = mpsc::channel(ASKS);
    if let Some(page) = config.metrics {
        let metrics = metrics.clone();
        side_tasks.spawn(async move {
            if let Err(failure) = page.serve(metrics, asks_in).await {
                warn!(%failure, "the metrics page has ended");
            }
        });
    }
    if let Some(pod) = config.pod {
        side_tasks.spawn(leader_label::keep(Api::default_namespaced(client.clone()), pod, leading.clone()));
    }
    let mut servers = JoinSet::new();
    if let Some(serving) = config.serving {
        let (client, leading, stop) = (client.clone(), leading.clone(), stop.clone());
        let extender = Extender::new(client.clone(), leading.clone());
        side_tasks.spawn(extender.clone().follow());
        let routes = routes(&extender, &serving.settings.namespace);
        servers.spawn(async move { serving.run(&client, leading, routes, stop).await });
    }
    let controller = Controller {
        writer: Writer::new(&client, &config.identity, metrics),
        client,
        index: Index::new(config.cluster.clone()),
        command_line: config.cluster,
        start: Instant::now(),
        listing: Vec::new(),
        synced: false,
        policies,
        leading,
        prepared: false,
        writes: JoinSet::new(),
        pods: PodsWatched::default(),
    };
    controller.run(asks, stop).await;
    while servers.join_next().await.is_some() {}
    // The lease is given up last: whoever takes over must not meet writes of ours.
    let _ = stop_candidate.send(true);
    if let Some(Err(failure)) = election.join_next().await {
        warn!(%failure, "the election ended badly");
    }
}

/// All that is answered over HTTPS.
fn routes(extender: &Extender, namespace: &str) -> Router {
    Router::new()
        .route("/ready", get(|| async { "ok\n" }))
        .merge(admission::router(namespace))
        .nest("/extender", extender.router())
}

struct Controller {
    client: kube::Client,
    writer: Writer,
    command_line: Cluster,
    index: Index,
    start: Instant,
    /// Nodes of a listing that is not complete yet.
    listing: Vec<Node>,
    /// A listing has been complete once.
    synced: bool,
    policies: watch::Receiver<Option<Policies>>,
    leading: watch::Receiver<bool>,
    /// What other processes told before is known.
    prepared: bool,
    writes: JoinSet<(Order, Outcome)>,
    pods: PodsWatched,
}

/// The pods as last seen.
#[derive(Default)]
struct PodsWatched {
    pods: Pods,
    /// Pods of a listing that is not complete yet.
    listing: Pods,
}

impl Controller {
    async fn run(mut self, mut asks: mpsc::Receiver<Ask>, mut stop: watch::Receiver<bool>) {
        let all: Api<KubeNode> = Api::all(self.client.clone());
        let mut nodes = watcher(all, watcher::Config::default()).backoff(Pauses::default()).boxed();
        let placed: Api<KubePod> = Api::all(self.client.clone());
        let mut pods =
            watcher(placed, watcher::Config::default().fields(ON_NODES)).backoff(Pauses::default()).boxed();
        loop {
            self.give_out().await;
            let due = self.next_look();
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => break,
                Some(event) = nodes.next() => self.take(event),
                Some(event) = pods.next() => self.take_pod(event),
                Ok(()) = self.policies.changed() => self.settings_changed(),
                Ok(()) = self.leading.changed() => self.leadership_changed(),
                Some(done) = self.writes.join_next() => self.written(done),
                Some(ask) = asks.recv() => {
                    // Who asked may have gone; that is his affair.
                    let _ = ask.send(self.snapshot());
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

    async fn give_out(&mut self) {
        if !self.may_write() {
            return;
        }
        if !self.prepared {
            self.prepared = true;
            self.learn_what_was_told().await;
        }
        // Asked again each time: the leadership may have ended while what was told was read.
        while self.may_write() && self.writes.len() < AT_ONCE {
            let Some(order) = self.index.next(self.start.elapsed()) else { break };
            let writer = self.writer.clone();
            self.writes.spawn(async move {
                let outcome = writer.carry_out(&order).await;
                (order, outcome)
            });
        }
    }

    /// When there may be something to give out; nothing if an event will tell.
    fn next_look(&self) -> Option<Instant> {
        let free = self.may_write() && self.writes.len() < AT_ONCE;
        self.index.next_due().filter(|_| free).map(|due| self.start + due)
    }

    fn take(&mut self, event: watcher::Result<watcher::Event<KubeNode>>) {
        let now = self.now();
        match event {
            Ok(watcher::Event::Init) => self.listing.clear(),
            Ok(watcher::Event::InitApply(node)) => self.listing.push(Node::of(&node)),
            Ok(watcher::Event::InitDone) => {
                let listing = std::mem::take(&mut self.listing);
                info!(nodes = listing.len(), "listed the nodes");
                self.index.reset(listing, now);
                self.synced = true;
            }
            Ok(watcher::Event::Apply(node)) => self.index.apply(Node::of(&node), now),
            Ok(watcher::Event::Delete(node)) => self.index.delete(&Node::of(&node).name),
            Err(failure) => warn!(%failure, "cannot watch the nodes; trying again"),
        }
    }

    fn take_pod(&mut self, event: watcher::Result<watcher::Event<KubePod>>) {
        let now = self.now();
        let watched = &mut self.pods;
        let changed = match event {
            Ok(watcher::Event::Init) => {
                watched.listing = Pods::default();
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
            let cluster = policies.settings(&self.command_line);
            info!(
                enabled = cluster.enabled,
                default = cluster.default_workload.as_deref().unwrap_or("container"),
                source = ?cluster.source,
                manage_operands = cluster.manage_operands,
                "settings"
            );
            self.index.set_cluster(cluster, now);
        }
    }

    fn leadership_changed(&mut self) {
        let leads = *self.leading.borrow_and_update();
        self.prepared = false;
        if leads {
            self.index.wake_all(self.now());
        }
    }

    fn written(&mut self, done: Result<(Order, Outcome), tokio::task::JoinError>) {
        match done {
            Ok((order, outcome)) => self.index.done(&order, outcome, self.now()),
            Err(failure) => warn!(%failure, "a write ended badly"),
        }
    }

    /// Events outlive the process that wrote them. What they tell is not told again by the next.
    async fn learn_what_was_told(&mut self) {
        let events: Api<KubeEvent> = Api::all(self.client.clone());
        let ours = ListParams::default().fields(&format!("reportingComponent={FIELD_MANAGER}"));
        let events = match within(events.list(&ours)).await {
            Ok(events) => events,
            Err(failure) => {
                warn!(%failure, "cannot read earlier Events; some may be told twice");
                return;
            }
        };
        for event in events {
            let reason = Reason::ALL.into_iter().find(|known| Some(known.word()) == event.reason.as_deref());
            let object = event.involved_object;
            if let (Some(reason), Some(name), Some(uid)) = (reason, object.name, object.uid) {
                self.index.has_been_told(&name, &uid, reason);
            }
        }
    }

    fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot { leading: *self.leading.borrow(), ..Snapshot::default() };
        snapshot.pending = i64::try_from(self.index.counts().1).unwrap_or(i64::MAX);
        for node in self.index.nodes() {
            let Some(node_use) = effective_use(node, self.index.cluster()) else { continue };
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

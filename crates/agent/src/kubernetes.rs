//! The agent on a node of a Kubernetes cluster.
//!
//! What the API server and the kubelet say becomes events for the pool's task, and what that task has to say becomes
//! Events, conditions, annotations and devices. Nothing is decided here, and nothing here is waited for by that task:
//! all of it runs in a thread of its own, so that a program's turn on a card never stands behind a watch.
//!
//! ```text
//!   API server ── node, pods ──► NodeWatch, pod_watch ──► task ────► report ──► Events, conditions
//!   kubelet ◄── device plugins ── cards' health ◄──────────┘ ▲
//!      └──────── a container starts, whose? ─────────────────┘
//! ```

mod cdi;
mod inquiries;
mod last_known;
mod node;
mod outage;
mod plugin;
mod pod_object;
mod pod_watch;
mod report;

use std::path::{Path, PathBuf};
use std::time::Duration;

use gpupool_core::sharing::PoolCard;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use thiserror::Error;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

pub use cdi::InstallError;
pub use node::Terms;
pub use plugin::KUBELET_DIRECTORY;

use crate::event::AgentEvent;
use crate::inquiry::{self, Inquiries};
use crate::notice::Notice;
use crate::worker::{NOBODY_LISTENS, Workers};
use last_known::LastKnown;
use node::{Known, NodeWatch};
use pod_watch::SharingPods;

/// The agent's socket as containers know it: its name in the directory that they get.
const SOCKET_NAME: &str = "agent.sock";

/// After this long without an answer to a connection attempt, the next one is tried.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// What an agent on a node of a cluster is told beside the rest.
#[derive(Debug, Clone)]
pub struct Settings {
    /// A kubeconfig; `None`: the pod's service account, or what the environment names.
    pub kubeconfig: Option<PathBuf>,
    /// The kubelet's root directory.
    pub kubelet_directory: PathBuf,
    /// The directory of CDI specs.
    pub cdi_directory: PathBuf,
    /// Full name of the CDI device with the driver and the cards, such as `nvidia.com/gpu=all`.
    pub driver_device: String,
    /// The host's directory for the shim.
    pub install_directory: PathBuf,
    /// The shim to lay out there.
    pub shim: PathBuf,
    /// How the quality of service is read.
    pub terms: Terms,
    /// Whether whole cards are advertised while no share policy is in force.
    pub whole_cards: bool,
}

/// Why an agent can't serve a cluster's node.
#[derive(Debug, Error)]
pub enum ClusterError {
    /// No way to the API server.
    #[error(
        "no way to the API server: {0}; in a cluster the pod's service account says it, elsewhere give --kubeconfig"
    )]
    Access(String),
    /// The files for containers.
    #[error(transparent)]
    Install(#[from] InstallError),
    /// Containers would look for another socket.
    #[error("the socket {0} must be called {SOCKET_NAME}: containers look for that name in its directory")]
    SocketName(PathBuf),
    /// Containers could read it.
    #[error(
        "the journal {0} lies in the socket's directory, which containers see: give another place with --state-dir"
    )]
    JournalInReach(PathBuf),
    /// No thread.
    #[error("cannot start a thread for the cluster: {0}")]
    Thread(#[from] std::io::Error),
}

/// Whether the journal and its lock are out of the containers' sight.
pub(crate) fn check_journal(journal: &Path, socket: &Path) -> Result<(), ClusterError> {
    match socket.parent() {
        Some(seen) if journal.starts_with(seen) => Err(ClusterError::JournalInReach(journal.to_owned())),
        _ => Ok(()),
    }
}

/// The ends of what was started.
#[derive(Debug)]
pub(crate) struct Started {
    /// What the owners of pods shall be told.
    pub(crate) notices: mpsc::Sender<Notice>,
    /// How the node's cards are.
    pub(crate) cards: watch::Sender<Vec<PoolCard>>,
    /// Where to ask for pods that nobody has told of yet.
    pub(crate) inquiries: Inquiries,
}

/// Starts everything that speaks with the cluster.
pub(crate) async fn start(
    settings: Settings,
    node: String,
    (socket, journal): (&Path, &Path),
    task: mpsc::Sender<AgentEvent>,
    workers: &Workers,
) -> Result<Started, ClusterError> {
    if socket.file_name().is_none_or(|name| name != SOCKET_NAME) {
        return Err(ClusterError::SocketName(socket.to_owned()));
    }
    let layout = cdi::Layout {
        shim: settings.shim.clone(),
        directory: settings.install_directory.clone(),
        specs: settings.cdi_directory.clone(),
        sockets: socket.parent().map_or_else(PathBuf::new, Path::to_owned),
    };
    layout.install()?;
    let mut config = access(settings.kubeconfig.as_deref()).await?;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    let (notices, to_report) = mpsc::channel(report::QUEUE);
    let last_known = LastKnown::read(journal.with_extension("last-known"));
    let (cards, health) = watch::channel(last_known.cards());
    let (inquiries, inbox) = inquiry::channel();
    let tasks = ClusterTasks { settings, node, config, task, last_known, health, to_report, inbox };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    workers.start("kubernetes", move || runtime.block_on(tasks.run()))?;
    Ok(Started { notices, cards, inquiries })
}

/// What the thread gets.
struct ClusterTasks {
    settings: Settings,
    node: String,
    config: Config,
    task: mpsc::Sender<AgentEvent>,
    last_known: LastKnown,
    health: watch::Receiver<Vec<PoolCard>>,
    to_report: mpsc::Receiver<Notice>,
    inbox: inquiry::Inbox,
}

impl ClusterTasks {
    /// Runs everything until a part of it ends; gives why.
    async fn run(self) -> String {
        let client = match Client::try_from(self.config.clone()) {
            Ok(client) => client,
            Err(failure) => return format!("no client for the API server: {}", outage::causes(&failure)),
        };
        let mut parts = JoinSet::new();
        parts.spawn(report::write(client.clone(), self.node.clone(), self.to_report));
        parts.spawn(self.inbox.answer(client.clone(), self.node.clone(), self.task.clone()));
        let node = NodeTasks {
            settings: self.settings,
            node: self.node,
            client,
            task: self.task,
            last_known: self.last_known,
            health: self.health,
        };
        parts.spawn(node.run());
        until_one_ends(parts).await;
        NOBODY_LISTENS.to_owned()
    }
}

/// What follows the node and its pods, and serves the kubelet.
struct NodeTasks {
    settings: Settings,
    node: String,
    client: Client,
    task: mpsc::Sender<AgentEvent>,
    last_known: LastKnown,
    health: watch::Receiver<Vec<PoolCard>>,
}

impl NodeTasks {
    async fn run(mut self) {
        // Where nothing is kept of an earlier agent, the pool's task says how the cards are as soon as it has taken up its
        // journal.
        if self.health.wait_for(|cards| !cards.is_empty()).await.is_err() {
            return;
        }
        let (policy, known) = watch::channel(self.last_known.policy());
        if let Known::Policy(policy) = self.last_known.policy() {
            // What held before goes on holding until the API server says otherwise. The task is gone when the agent goes down.
            let _ = self.task.send(AgentEvent::Sharing { policy, qos: None }).await;
        }
        let nodes = NodeWatch {
            client: self.client.clone(),
            name: self.node.clone(),
            terms: self.settings.terms,
            task: self.task.clone(),
            policy,
            cards: self.health.clone(),
        };
        let mut parts = JoinSet::new();
        let mut heard = known.clone();
        parts.spawn(nodes.follow());
        parts.spawn(self.last_known.keep(known.clone(), self.health.clone()));
        let seen = SharingPods::default();
        let context = plugin::PluginContext {
            kubelet: plugin::Kubelet::at(self.settings.kubelet_directory),
            client: self.client.clone(),
            node: self.node.clone(),
            seen: seen.clone(),
            policy: known,
            cards: self.health,
            task: self.task.clone(),
            driver_device: self.settings.driver_device,
        };
        plugin::serve(&context, self.settings.whole_cards, &mut parts);
        // Who may be in the pool depends on the policy: pods come after the API server's word on it.
        if heard.changed().await.is_ok() {
            parts.spawn(pod_watch::follow(self.client, self.node, seen, self.task));
        }
        until_one_ends(parts).await;
    }
}

/// Waits for the first that ends. A panic of it goes on here.
async fn until_one_ends(mut parts: JoinSet<()>) {
    if let Some(Err(failure)) = parts.join_next().await
        && failure.is_panic()
    {
        std::panic::resume_unwind(failure.into_panic());
    }
}

async fn access(kubeconfig: Option<&Path>) -> Result<Config, ClusterError> {
    // Another part of the process may have installed it already; there is only ring, so it is the same one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let failed = |failure: &dyn std::error::Error| ClusterError::Access(outage::causes(failure));
    match kubeconfig {
        None => Config::infer().await.map_err(|failure| failed(&failure)),
        Some(path) => {
            let file = Kubeconfig::read_from(path).map_err(|failure| failed(&failure))?;
            let options = KubeConfigOptions::default();
            Config::from_custom_kubeconfig(file, &options).await.map_err(|failure| failed(&failure))
        }
    }
}

//! The agent's tasks: one that owns the pool, one for each connection, one for each process that is watched.
//!
//! A connection has at most one message with the pool's task at any time, and that task takes messages in the order in
//! which they come: however fast somebody talks, everybody else has their turn in between. Ends of processes come
//! before everything else.

mod conversation;
mod watchdog;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gpupool_core::pool::{Config, Policy, Pool, Qos};
use rustix::process::{Resource, Rlimit};
use thiserror::Error;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio_seqpacket::UnixSeqpacket;
use tracing::{info, warn};

use crate::admin_api::policy_name;
use crate::cards::watch::Watch;
use crate::cards::{self, Cards, CardsError, ContextFigures, Probe, Source};
use crate::clock::BootClock;
use crate::core_limit::meter::Meter;
use crate::environment::Environment;
use crate::event::AgentEvent;
use crate::identity::{Ancestry, Cgroups, Identify};
use crate::inquiry::Inquiries;
use crate::journal::{Journal, JournalError};
#[cfg(feature = "kubernetes")]
use crate::kubernetes::{self, ClusterError};
use crate::lock::{Lock, LockError};
use crate::metrics::{self, Scrape};
use crate::packet_socket::{Listener, PassedDescriptors};
use crate::peer::{self, HeldProcess};
use crate::pool_task::{Cluster, PoolTask, RESERVE, TaskSettings, UnservedPrograms};
use crate::procfs::{Proc, ProcessKey};
use crate::registry::Record;
use crate::restart::{self, RestartError};
use crate::socket_path::{SocketPathError, Surroundings};
use crate::usage_audit::observe::{Ledgers, LookRequests, Observer};
use crate::worker::{WorkerEnded, Workers};

/// Messages that may wait for the pool's task: few, since whoever speaks next waits for all of them.
const INBOX: usize = 64;

/// Connections that are being taken in at the same time.
const ARRIVING: usize = 32;

/// On a cluster's node without NVIDIA's driver: when it is looked for again.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// On such a node: for so long the cards of before go on being advertised. After a boot NVIDIA's driver may take minutes,
/// and a pod whose container can't be made yet is tried again, while one that the kubelet turns away is not.
const ADVERTISED_WITHOUT_DRIVER: Duration = Duration::from_mins(10);

/// Descriptors that are not for connections: journal, locks, signals, libraries.
const OWN_DESCRIPTORS: u64 = 64;

/// Descriptors that one connection may cost: itself, its pidfd twice, and a share of its pod's pages.
const PER_CONNECTION: u64 = 4;

/// Everything that an agent is told when it starts.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where its socket is.
    pub surroundings: Surroundings,
    /// Where its journal is.
    pub journal: PathBuf,
    /// Where the cards come from.
    pub source: Source,
    /// How many cards there must be; `None`: as many as there are.
    pub expected_cards: Option<usize>,
    /// How they are shared.
    pub policy: Policy,
    /// When pods make room.
    pub qos: Qos,
    /// Whether pods may use what nobody else uses, beyond their core limits.
    pub work_conserving: bool,
    /// Where the metrics page is served, if anywhere.
    pub metrics: Option<SocketAddr>,
    /// Whether the metrics page says what each pod uses of its card; not where an exporter of NVIDIA's does.
    pub device_metrics: bool,
    /// The machine's name in the metrics; in a cluster the node's.
    pub node: String,
    /// What becomes of descriptors that are sent to the socket; an older kernel can't refuse them.
    pub descriptors: PassedDescriptors,
    /// Whether a pod that lastingly takes more device memory than its limit loses its GPU processes.
    pub evict_unaccounted: bool,
    /// What becomes of programs whose shim is not understood here.
    pub unserved: UnservedPrograms,
    /// The log.
    pub log: LogHooks,
    /// Set on a node of a cluster, where the policy and the quality of service come from the API server.
    #[cfg(feature = "kubernetes")]
    pub kubernetes: Option<kubernetes::Settings>,
}

/// What the agent asks of the log that its lines go to.
#[derive(Debug, Clone, Copy)]
pub struct LogHooks {
    /// How many lines were lost because nobody read them.
    pub lines_lost: fn() -> u64,
    /// Waits a moment for what was logged to be written.
    pub drain: fn(),
}

impl Settings {
    /// What of these the pool's task needs.
    fn of_task(&self, boot: String, most_connections: usize) -> TaskSettings {
        TaskSettings {
            node: self.node.clone(),
            simulated: self.source.simulated.clone(),
            user: self.surroundings.user,
            boot,
            most_connections,
            device_metrics: self.device_metrics,
            evict_unaccounted: self.evict_unaccounted,
            unserved: self.unserved,
            log_lines_lost: self.log.lines_lost,
            work_conserving: self.work_conserving,
        }
    }

    fn simulated_state(&self) -> PathBuf {
        self.source.simulated.as_ref().map_or_else(PathBuf::new, |simulated| simulated.state.clone())
    }
}

/// What is different on a node of a cluster.
#[cfg_attr(
    not(feature = "kubernetes"),
    allow(clippy::unused_self, clippy::unused_async, reason = "without the feature nothing is")
)]
impl Settings {
    /// Whether this agent serves a node of a cluster.
    fn in_cluster(&self) -> bool {
        #[cfg(feature = "kubernetes")]
        return self.kubernetes.is_some();
        #[cfg(not(feature = "kubernetes"))]
        false
    }

    /// Claims the socket's lock. Containers see the directory of a cluster's socket, and a lock file there could be held
    /// by one of them: so there it is checked that the journal, which has a lock too, is out of their sight.
    fn lock_socket(&self, socket: &Path) -> Result<Option<Lock>, AgentError> {
        #[cfg(feature = "kubernetes")]
        if self.kubernetes.is_some() {
            kubernetes::check_journal(&self.journal, socket)?;
            return Ok(None);
        }
        Ok(Some(Lock::claim(socket)?))
    }

    /// Starts what speaks with the cluster, on a node of one.
    async fn start_cluster(
        &self,
        socket: &Path,
        inbox: mpsc::Sender<AgentEvent>,
        workers: &Workers,
    ) -> Result<Option<(Cluster, Inquiries)>, AgentError> {
        #[cfg(feature = "kubernetes")]
        if let Some(kubernetes) = self.kubernetes.clone() {
            let places = (socket, self.journal.as_path());
            let started = kubernetes::start(kubernetes, self.node.clone(), places, inbox, workers).await?;
            return Ok(Some((Cluster::new(started.notices, started.cards), started.inquiries)));
        }
        let _ = (socket, inbox, workers);
        Ok(None)
    }
}

/// Why an agent does not run.
#[derive(Debug, Error)]
pub enum AgentError {
    /// The socket's place.
    #[error(transparent)]
    Path(#[from] SocketPathError),
    /// Another agent.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The cards.
    #[error(transparent)]
    Cards(#[from] CardsError),
    /// The journal's file.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The journal's content.
    #[error(transparent)]
    Restart(#[from] RestartError),
    /// The metrics page.
    #[error("cannot serve the metrics on {address}: {source}")]
    Metrics {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: std::io::Error,
    },
    /// The socket.
    #[error("cannot listen on {socket}: {source}")]
    Socket {
        /// The path.
        socket: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The cluster.
    #[cfg(feature = "kubernetes")]
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// A part of itself.
    #[error(transparent)]
    Worker(#[from] WorkerEnded),
    /// Something that every machine has.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system says.
        source: std::io::Error,
    },
}

/// Runs an agent until it is told to end (SIGTERM or SIGINT). Programs that hold cards go on without it.
pub async fn serve(settings: Settings) -> Result<(), AgentError> {
    let socket = settings.surroundings.socket()?;
    settings.surroundings.prepare_directory(&socket)?;
    let _socket_lock = settings.lock_socket(&socket)?;
    let _journal_lock = Lock::claim(&settings.journal)?;
    let most_connections = raise_descriptor_limit();
    let (inbox, inputs) = mpsc::channel(INBOX);
    let (workers, fallen) = Workers::new();
    // First of all: the kubelet does not wait for the cards.
    let (cluster, inquiries) = settings.start_cluster(&socket, inbox.clone(), &workers).await?.unzip();
    let probe = find_cards(&settings, cluster.as_ref()).await?;
    let (watch, indices) = Watch::open(&settings.source.nvml_library(), &probe)?;
    let cards = Cards::new(&probe, &indices)?;
    let boot = Proc::default().boot_id().map_err(system("read the boot's id"))?;
    let (journal, recovered) = open_journal(&settings, &cards, &boot)?;
    let setting = settings.of_task(boot, most_connections);
    let (exits, ended) = mpsc::unbounded_channel();
    let ledgers = Ledgers::default();
    let (looks, requests) = LookRequests::new();
    let meter = start_looking(&settings, &workers, Observer::new(watch, ledgers.clone()), requests, &inbox)
        .map_err(system("start a thread"))?;
    serve_metrics(&settings, &workers, &inbox).await?;
    let stop = stop_signals().map_err(system("handle signals"))?;
    announce(&settings, &cards);
    let qos = match &cluster {
        // What held before goes on holding until the API server says otherwise.
        Some(_) => {
            Qos { grace: settings.qos.grace, idle_release: settings.qos.idle_release, ..recovered.pool.qos() }
        }
        None => settings.qos,
    };
    let environment = environment(cluster.is_some(), cards, journal, meter, (ledgers, looks), exits);
    let task = PoolTask::new(setting, environment, recovered, qos);
    let task = match cluster {
        Some(cluster) => task.in_cluster(cluster),
        None => task,
    };
    let listener =
        listen(&socket, &settings).map_err(|source| AgentError::Socket { socket: socket.clone(), source })?;
    info!("listening on {}", socket.display());
    watchdog::start(&workers, inbox.clone(), settings.log.drain).map_err(system("start a thread"))?;
    let end = tokio::select! {
        end = run_task(task, Inputs { events: inputs, ended, stop, fallen }) => end,
        never = accept(listener, inbox, inquiries) => match never {},
    };
    // Nobody else can have put another socket there while the lock is ours.
    let _ = std::fs::remove_file(&socket);
    end?;
    info!("stopped; programs that hold cards go on");
    Ok(())
}

/// Starts the threads that ask NVML.
fn start_looking(
    settings: &Settings,
    workers: &Workers,
    observer: Observer,
    requests: std::sync::mpsc::Receiver<u64>,
    inbox: &mpsc::Sender<AgentEvent>,
) -> std::io::Result<Meter> {
    let told = inbox.clone();
    observer.run(workers, requests, move |observation| {
        told.blocking_send(AgentEvent::Looked(observation)).is_ok()
    })?;
    let told = inbox.clone();
    Meter::start(&settings.source.nvml_library(), workers, move |shares| {
        told.blocking_send(AgentEvent::Metered(shares)).is_ok()
    })
}

async fn serve_metrics(
    settings: &Settings,
    workers: &Workers,
    inbox: &mpsc::Sender<AgentEvent>,
) -> Result<(), AgentError> {
    let Some(address) = settings.metrics else { return Ok(()) };
    let task = inbox.clone();
    let bound = metrics::serve(address, workers, move || scrape(task.clone())).await;
    let bound = bound.map_err(|source| AgentError::Metrics { address, source })?;
    info!("metrics on http://{bound}/metrics");
    Ok(())
}

/// The machine, as the pool's task sees it.
fn environment(
    in_cluster: bool,
    cards: Cards,
    journal: Journal,
    meter: Meter,
    (ledgers, looks): (Ledgers, LookRequests),
    exits: mpsc::UnboundedSender<ProcessKey>,
) -> Environment {
    let proc = Proc::default();
    let identity: Box<dyn Identify> =
        if in_cluster { Box::new(Cgroups::new(proc.clone())) } else { Box::new(Ancestry::new(proc.clone())) };
    Environment {
        cards,
        clock: Box::new(BootClock),
        journal: Box::new(journal),
        processes: Box::new(proc),
        identity,
        meter: Box::new(meter),
        ledgers,
        looks,
        exits,
    }
}

/// The machine's cards. On a cluster's node their driver may be installed after the agent, or never.
async fn find_cards(settings: &Settings, cluster: Option<&Cluster>) -> Result<Probe, CardsError> {
    let (mut complained, since) = (false, Instant::now());
    let mut figures = ContextFigures::read(&settings.journal.with_extension("contexts"));
    let probe = loop {
        match cards::probe(&settings.source, &mut figures) {
            Ok(probe) => break probe,
            Err(failure) if !settings.in_cluster() => return Err(failure),
            Err(failure) if !std::mem::replace(&mut complained, true) => {
                warn!("{failure} The agent looks again every {} seconds", LOOK_AGAIN.as_secs());
            }
            Err(_) => {}
        }
        if let Some(cluster) = cluster.filter(|_| since.elapsed() > ADVERTISED_WITHOUT_DRIVER) {
            cluster.advertise_nothing();
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    };
    match settings.expected_cards.filter(|expected| *expected != probe.cards.len()) {
        Some(expected) => {
            Err(CardsError::Count { expected, found: probe.cards.len(), state: settings.simulated_state() })
        }
        None => Ok(probe),
    }
}

/// What the pool's task is told, and by whom its time ends.
struct Inputs {
    events: mpsc::Receiver<AgentEvent>,
    /// Processes that have ended.
    ended: mpsc::UnboundedReceiver<ProcessKey>,
    stop: mpsc::UnboundedReceiver<()>,
    /// Threads of the agent that have ended.
    fallen: mpsc::UnboundedReceiver<WorkerEnded>,
}

async fn run_task(mut task: PoolTask, from: Inputs) -> Result<(), WorkerEnded> {
    let Inputs { mut events, mut ended, mut stop, mut fallen } = from;
    let mut second = tokio::time::interval(Duration::from_secs(1));
    second.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let end = loop {
        let patience = Duration::from_millis(task.patience());
        tokio::select! {
            biased;
            Some(key) = ended.recv() => task.ended(key),
            Some(()) = stop.recv() => break Ok(()),
            Some(worker) = fallen.recv() => break Err(worker),
            _ = second.tick() => task.tick(true),
            () = tokio::time::sleep(patience) => task.tick(false),
            Some(event) = events.recv() => task.handle(event),
            else => break Ok(()),
        }
    };
    task.close();
    end
}

async fn accept(
    mut listener: Listener,
    inbox: mpsc::Sender<AgentEvent>,
    inquiries: Option<Inquiries>,
) -> Infallible {
    let arriving = Arc::new(Semaphore::new(ARRIVING));
    loop {
        // Closed by nobody; the others wait in the kernel.
        let place = Arc::clone(&arriving).acquire_owned().await.ok();
        match listener.accept().await {
            Ok(socket) => {
                tokio::spawn(conversation::converse(socket, place, inbox.clone(), inquiries.clone()));
            }
            Err(failure) => {
                // Out of descriptors, most likely: those who are here must end before others can come.
                warn!("cannot take a connection: {failure}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Who is at the other end of a new connection.
fn introduce(socket: &UnixSeqpacket) -> Result<(u32, HeldProcess), peer::PeerError> {
    peer::of_socket(&Proc::default(), socket)
}

fn open_journal(
    settings: &Settings,
    cards: &Cards,
    boot: &str,
) -> Result<(Journal, restart::Recovered), AgentError> {
    let (mut journal, replay) = Journal::open::<Record>(&settings.journal)?;
    if let Some(unknown) = replay.unknown {
        return Err(restart::refuse(&settings.journal, &replay.records, unknown).into());
    }
    let in_cluster = settings.in_cluster();
    let config = Config {
        cards: cards.for_pool(),
        policy: settings.policy,
        qos: settings.qos,
        // In a cluster the scheduler places pods.
        check_requests: !in_cluster,
    };
    let mut recovered = restart::recover(replay.records, boot, config.clone())?;
    // Only now: what this agent refuses to take up from stays as it is.
    if let Some(damage) = journal.set_damage_aside() {
        warn!("{damage}");
    }
    if let Some(remark) = &recovered.remark {
        info!("{remark}");
    }
    if recovered.registry.pods().next().is_none() {
        recovered.pool = Pool::new(config).map_err(RestartError::Cards)?;
    } else if !in_cluster && recovered.pool.policy() != settings.policy {
        let (was, is) = (policy_name(recovered.pool.policy()), policy_name(settings.policy));
        return Err(RestartError::Policy { was, is }.into());
    }
    Ok((journal, recovered))
}

/// Asks the pool's task for what the metrics page says; `None` when the agent goes down.
async fn scrape(inbox: mpsc::Sender<AgentEvent>) -> Option<Scrape> {
    let (answer, scraped) = oneshot::channel();
    inbox.send(AgentEvent::Scrape { answer }).await.ok()?;
    scraped.await.ok()
}

fn announce(settings: &Settings, cards: &Cards) {
    let kind = if settings.source.simulated.is_some() { "simulated " } else { "" };
    info!("serving {} {kind}card(s) as one {}:", cards.all().len(), policy_name(settings.policy));
    for card in cards.all() {
        let gibibytes = card.total_memory / (1 << 30);
        info!("  card {}: {}, {gibibytes} GiB, {}", card.index, card.name, card.uuid);
    }
}

fn listen(socket: &Path, settings: &Settings) -> std::io::Result<Listener> {
    match std::fs::remove_file(socket) {
        // Of an agent that was killed: the lock says that nobody listens there.
        Ok(()) => {}
        Err(missing) if missing.kind() == std::io::ErrorKind::NotFound => {}
        Err(failure) => return Err(failure),
    }
    let listener = Listener::bind(socket, settings.descriptors)?;
    // Root's agent serves everybody on the machine; who belongs to which pod is not decided by the socket's mode.
    let mode = if settings.surroundings.user == 0 { 0o666 } else { 0o600 };
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(mode))?;
    Ok(listener)
}

/// Gets as many descriptors as the system gives, and says for how many connections they are enough.
fn raise_descriptor_limit() -> usize {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let now = match rustix::process::setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    // Without a limit the kernel's own counts, which is a million.
    let descriptors = now.unwrap_or(1 << 20).saturating_sub(OWN_DESCRIPTORS);
    let connections = usize::try_from(descriptors / PER_CONNECTION).unwrap_or(usize::MAX);
    connections.saturating_sub(RESERVE).max(16)
}

fn stop_signals() -> std::io::Result<mpsc::UnboundedReceiver<()>> {
    let (stop, stopped) = mpsc::unbounded_channel();
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let mut signals = signal(kind)?;
        let stop = stop.clone();
        tokio::spawn(async move { while signals.recv().await.is_some() && stop.send(()).is_ok() {} });
    }
    Ok(stopped)
}

fn system(what: &'static str) -> impl Fn(std::io::Error) -> AgentError {
    move |source| AgentError::System { what, source }
}

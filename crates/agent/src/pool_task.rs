//! The one task that owns the pool: it turns what happens into the pool's events, and the pool's decisions into
//! records, messages, signals and pages.
//!
//! Every input is handled whole: first the pool and the registry, then the journal (one write), and only then does
//! anybody hear of it. So whatever a program was told, a restarted agent knows.

mod cluster;
mod connections;
mod core;
mod ending;
mod ledgers;
mod members;
mod occupancy;
mod outbox;
mod pod_names;
mod pod_pages;
mod presence;
mod processes;
mod publish;
mod reports;
mod requests;
mod resume;
mod seconds;
mod status;
mod termination;
#[cfg(test)]
mod tests;
mod usage_audit;

use std::collections::{BTreeMap, BTreeSet};

use gpupool_core::pool::{
    Action, CardUuid, Event, LeaseId, PodId, Pool, Qos, Refusal, TerminationReason, Timestamp,
};
use gpupool_wire::message::{Granted, Refused, Welcome};
use tracing::{info, warn};
use zerocopy::IntoBytes as _;

use crate::admin_api::WhyHeldBack;
use crate::cards::SimulatedDriver;
use crate::environment::Environment;
use crate::event::{Accepted, AgentEvent, ConnectionId};
use crate::notice::Termination;
use crate::procfs::ProcessKey;
use crate::registry::{CardUse, Record, Registry};
use crate::restart::Recovered;

pub(crate) use cluster::Cluster;
use connections::Connections;
pub(crate) use connections::RESERVE;
use ending::Stops;
use members::{Member, Members};
use outbox::{Effect, Outbox, WriteFailure};
use pod_pages::PodPages;
use presence::Presence;
use reports::Reports;

/// What does not change while the agent runs.
#[derive(Debug, Clone)]
pub(crate) struct TaskSettings {
    /// The machine's name in the metrics.
    pub(crate) node: String,
    /// Set when the cards are simulated.
    pub(crate) simulated: Option<SimulatedDriver>,
    /// The user the agent runs as.
    pub(crate) user: u32,
    /// The boot whose process ids and times are meant.
    pub(crate) boot: String,
    /// Whether the metrics page says what each pod uses of its card.
    pub(crate) device_metrics: bool,
    /// Most connections at the same time, all callers together.
    pub(crate) most_connections: usize,
    /// Whether a pod that takes more than its limit, by what NVML shows, loses its GPU processes.
    pub(crate) evict_unaccounted: bool,
    /// Whether pods may use what nobody else uses, beyond their core limits.
    pub(crate) work_conserving: bool,
}

/// The agent's state, and its only writer.
#[derive(Debug)]
pub(crate) struct PoolTask {
    settings: TaskSettings,
    environment: Environment,
    /// When this agent took up what an earlier one left.
    started: Timestamp,
    pool: Pool,
    registry: Registry,
    /// Set on a node of a cluster.
    cluster: Option<Cluster>,
    members: Members,
    pages: PodPages,
    connections: Connections,
    stops: Stops,
    /// How the GPU processes of each pod were last ended, as far as this agent has seen to it.
    terminations: BTreeMap<PodId, Termination>,
    check: usage_audit::Check,
    presence: Presence,
    /// When a look at the cards is due that somebody has asked for.
    look_due: Option<Timestamp>,
    /// What was said of cards that are held back: card, why, and whose processes.
    held_back_said: BTreeSet<(u32, WhyHeldBack, Option<String>)>,
    reports: Reports,
    outbox: Outbox,
}

impl PoolTask {
    /// Takes up where the journal ends. Must be called inside the runtime: it begins to watch processes.
    pub(crate) fn new(
        settings: TaskSettings,
        environment: Environment,
        recovered: Recovered,
        qos: Qos,
    ) -> Self {
        let work_conserving = settings.work_conserving;
        let most_connections = settings.most_connections;
        let mut task = Self {
            settings,
            started: environment.clock.now(),
            environment,
            pool: recovered.pool,
            registry: recovered.registry,
            cluster: None,
            members: Members::default(),
            pages: PodPages::new(work_conserving),
            connections: Connections::new(most_connections),
            stops: Stops::default(),
            terminations: BTreeMap::new(),
            check: usage_audit::Check::default(),
            presence: Presence::default(),
            look_due: None,
            held_back_said: BTreeSet::new(),
            reports: Reports::default(),
            outbox: Outbox::default(),
        };
        task.take_up(qos);
        task.follow_core_limits();
        task
    }

    /// Serves a node of a cluster from now on: pods come from its API server.
    pub(crate) fn in_cluster(self, cluster: Cluster) -> Self {
        let mut task = Self { cluster: Some(cluster), ..self };
        task.publish_cards();
        task.repeat_notices();
        task
    }

    /// Handles one input and lets everybody know.
    pub(crate) fn handle(&mut self, event: AgentEvent) {
        self.forget_old_looks();
        match event {
            AgentEvent::Connected { socket, user, held, accepted } => {
                let owner = self.environment.identity.pod_of(held.key(), Some(held.parent())).ok();
                let unheard_of = owner.clone().filter(|pod| self.is_unheard_of(pod));
                let may_ask = self.cluster.is_none() || owner.is_none();
                // The task that asked has ended when nobody listens; its connection is closed below then.
                let id = self.connections.add(socket, user, held, owner);
                let taken_in = id.map(|(id, turns)| Accepted { id, turns, unheard_of, may_ask });
                let _ = accepted.send(taken_in);
            }
            AgentEvent::Frame { from, frame, done } => {
                self.frame(from, frame);
                self.finish();
                // Only now may the connection's next frame come.
                let _ = done.send(());
                return;
            }
            AgentEvent::Request { from, request, answer } => self.request(from, request, answer),
            AgentEvent::Watch { answer } => self.watch(answer),
            AgentEvent::Rubbish { from } => self.rubbish(from),
            AgentEvent::Over { from, let_go } => {
                self.over(from);
                // Whoever closes it may be gone with the agent.
                let _ = let_go.send(());
            }
            AgentEvent::Closed { from } => self.connections.closed(from),
            AgentEvent::Metered(shares) => self.metered(&shares),
            AgentEvent::Looked(observation) => self.observed(observation),
            AgentEvent::Pods(news) => self.pods_changed(news),
            AgentEvent::Starting { pod, answer } => {
                let place = self.present(pod);
                // A container starts only once its pod's place is in the journal.
                self.finish();
                // The kubelet may have given up meanwhile.
                let _ = answer.send(place);
                return;
            }
            AgentEvent::Sharing { policy, qos } => self.sharing_changed(policy, qos),
            AgentEvent::Alive { answer } => {
                // Whoever asked may be gone.
                let _ = answer.send(());
                return;
            }
            AgentEvent::Scrape { answer } => {
                // The scraper may have hung up.
                let _ = answer.send(self.scrape());
                return;
            }
        }
        self.finish();
    }

    /// A process has ended: its pidfd says so.
    pub(crate) fn ended(&mut self, key: ProcessKey) {
        self.forget_old_looks();
        self.process_ended(key);
        self.finish();
    }

    /// Time has passed: a second since this was last said, or less.
    pub(crate) fn tick(&mut self, second: bool) {
        self.forget_old_looks();
        let now = self.now();
        if self.pool.next_deadline().is_some_and(|deadline| deadline <= now) {
            self.apply(&Event::Tick);
        }
        if second {
            self.every_second(now);
        }
        self.continue_stops(now);
        self.send_for_looks(now);
        self.finish();
    }

    /// How long until [`Self::tick`] must be called at the latest, in milliseconds: a second, or less.
    pub(crate) fn patience(&self) -> u64 {
        let now = self.now();
        let deadlines = [self.pool.next_deadline(), self.stops.next_deadline(), self.look_due];
        deadlines.into_iter().flatten().map(|deadline| (deadline - now).0).fold(1000, u64::min)
    }

    /// Before the agent goes: the journal as short as it can be.
    pub(crate) fn close(&mut self) {
        self.finish();
        self.write_snapshot();
    }

    fn now(&self) -> Timestamp {
        self.environment.clock.now()
    }

    /// Tells the pool what happened, and notes its decisions.
    fn step(&mut self, event: &Event) -> Result<(), Refusal> {
        let at = self.now();
        let actions = self.pool.step(at, event.clone())?;
        self.outbox.record(Record::Step { at, event: event.clone() });
        for action in actions {
            self.decided(action);
        }
        Ok(())
    }

    /// Applies an event that must succeed; a refusal is a bug, logged and counted.
    fn apply(&mut self, event: &Event) {
        if let Err(refusal) = self.step(event) {
            warn!("the pool does not accept {event:?}: {refusal}");
            self.reports.counters.disagreements.inc();
        }
    }

    /// Notes a change of the registry.
    fn record(&mut self, record: Record) {
        self.registry.apply(&record);
        self.outbox.record(record);
    }

    fn decided(&mut self, action: Action) {
        self.registry.decided(&action);
        match action {
            Action::Grant { pod, card, lease, .. } => self.granted(&pod, &card, lease),
            Action::Preempted { victim, beneficiary, card } => {
                self.reports.counters.preemptions.inc();
                let names = (self.name_of(&victim), self.name_of(&beneficiary));
                info!("{} on card {} is pre-empted by {}", names.0, self.card_name(&card), names.1);
                self.notice_preemption(&victim, &beneficiary, self.pool.now());
            }
            Action::Terminate { pod, why, kill_at, .. } => {
                let grace = kill_at - self.now();
                let why = self.readable(&why.to_string());
                info!("{} must leave its card within {grace}: {why}", self.name_of(&pod));
                self.end_holders(&pod, false);
            }
            Action::Kill { pod, why, .. } => {
                self.reports.counters.kills.inc();
                let why = self.readable(&why.to_string());
                info!("{} is killed on its card: {why}", self.name_of(&pod));
                self.end_holders(&pod, true);
            }
            Action::Hibernated { pod, why, .. } => {
                if let Some(
                    why @ (TerminationReason::Preempted { .. }
                    | TerminationReason::IdleRelease { .. }
                    | TerminationReason::CardLost),
                ) = why
                {
                    let why = self.readable(&why.to_string());
                    info!("{} has left its card: {why}", self.name_of(&pod));
                }
            }
            Action::LimitsChanged { .. } => {}
        }
    }

    fn granted(&mut self, pod: &PodId, card: &CardUuid, lease: LeaseId) {
        let now = self.now();
        self.reports.admitted(pod, now);
        if let Some(files) = self.pages.get_mut(pod) {
            files.submitted = now;
            files.idle = false;
        }
        let holders = self.registry.members_using(pod, CardUse::Holding);
        if holders.is_empty() {
            self.outbox.give_back(pod.clone(), lease);
        }
        for key in holders {
            self.grant_to(key, pod, card, lease);
        }
    }

    /// Tells one process of its pod's lease, if it has asked on its connection; if not, it hears of it when it does.
    fn grant_to(&mut self, key: ProcessKey, pod: &PodId, card: &CardUuid, lease: LeaseId) {
        if let Some(to) = self.members.answer(key) {
            self.outbox.tell(Effect::Granted { to, pod: pod.clone(), card: card.clone(), lease });
        }
    }

    /// Ends an input: leases that nobody claims go back, the journal is written, and everybody hears.
    fn finish(&mut self) {
        loop {
            while let Some((pod, lease)) = self.outbox.next_unclaimed() {
                self.apply(&Event::Released { pod: pod.clone(), lease });
                self.retire(&pod);
            }
            // Who has a right to be there changes with leases, and every change of those is a record.
            let may_differ = self.presence.take_changed() || self.outbox.has_records();
            if !may_differ || !self.tell_who_is_on_the_cards() {
                break;
            }
        }
        let changed = self.outbox.has_records();
        if changed {
            self.follow_core_limits();
        }
        self.write_records();
        for effect in self.outbox.take_effects() {
            self.carry_out(effect);
        }
        if changed {
            self.publish();
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Welcome { to, pod, slot } => self.send_welcome(to, &pod, slot),
            Effect::Granted { to, pod, card, lease } => {
                // A program reads its limit as soon as it hears of the grant.
                self.publish_pod(&pod);
                let Some((index, card)) = self.environment.cards.find(&card) else { return };
                self.connections.send(to, Granted::new(lease.0, card.bytes, index).as_bytes(), &[]);
            }
            Effect::Refused { to, reason, sentence } => {
                self.connections.send(to, Refused::new(reason, &sentence).as_bytes(), &[]);
                // A caller that was not taken in is given one answer; another try is another connection.
                if self.connections.get(to).is_some_and(|connection| !connection.introduced) {
                    self.connections.cut(to);
                }
            }
            Effect::Notice(notice) => {
                if let Some(cluster) = &self.cluster {
                    cluster.tell(notice);
                }
            }
            Effect::Signal { to, warrant } => {
                let sent = match self.members.get(&to) {
                    Some(member) => member.held.signal(&warrant),
                    // It uses the card without having said so. If it has ended meanwhile, it needs no signal.
                    None => {
                        self.environment.processes.hold(to).map_or(Ok(false), |held| held.signal(&warrant))
                    }
                };
                if let Err(failure) = sent {
                    warn!("cannot send a signal to process {}: {failure}", to.pid);
                }
            }
        }
    }

    fn send_welcome(&mut self, to: ConnectionId, pod: &PodId, slot: u32) {
        self.publish_pod(pod);
        let Some(files) = self.pages.get(pod) else { return };
        // Who comes back with a lease keeps the ledger that it has; where the agent has not got that, the limits stand
        // in its place.
        let limits = files.limits.descriptor();
        let ledger = files.ledger.as_ref().map_or(limits, |ledger| ledger.descriptor());
        let descriptors = [limits, ledger, std::os::fd::AsFd::as_fd(self.environment.cards.table())];
        self.connections.send(to, Welcome::new(slot, pod.as_str()).as_bytes(), &descriptors);
    }

    fn write_records(&mut self) {
        let Self { outbox, environment, registry, pool, settings, .. } = self;
        let written = outbox.write(&mut *environment.journal, || snapshot(settings, registry, pool));
        self.note_written(written);
    }

    /// Puts everything that holds into the place of the journal.
    fn write_snapshot(&mut self) {
        let snapshot = snapshot(&self.settings, &self.registry, &self.pool);
        let written = self.outbox.write_snapshot(&mut *self.environment.journal, &snapshot);
        self.note_written(written);
    }

    fn note_written(&self, written: Result<(), WriteFailure>) {
        let Err(failure) = written else { return };
        self.reports.counters.journal_failures.inc();
        if let Some(sentence) = failure.sentence {
            info!("{sentence}");
        }
    }

    fn card_name(&self, card: &CardUuid) -> String {
        self.environment.cards.find(card).map_or_else(|| card.to_string(), |(_, info)| info.index.to_string())
    }
}

/// Everything that holds, as a journal begins.
fn snapshot(settings: &TaskSettings, registry: &Registry, pool: &Pool) -> [Record; 2] {
    let opened = Record::Opened { version: crate::restart::VERSION, boot: settings.boot.clone() };
    [opened, registry.snapshot(pool.snapshot())]
}

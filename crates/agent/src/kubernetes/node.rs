//! This node's object: the policy in force and its quality of service are read there, the pool's cards written.

use std::pin::pin;
use std::time::Duration;

use futures::StreamExt as _;
use gpupool_core::pool::{self, Millis};
use gpupool_core::sharing::names::{POLICY_IN_FORCE_LABEL, POOL_CARDS_ANNOTATION, QOS_IN_FORCE_ANNOTATION};
use gpupool_core::sharing::{Policy, PoolCard, Qos, cards};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tracing::{info, warn};

use super::outage::{Outage, causes};
use crate::event::AgentEvent;

/// When a write that failed is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// What the agent itself says about the quality of service.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    /// What the annotation's "minutes" are: a minute, or less in labs.
    pub duration_unit: Duration,
    /// Between SIGTERM and SIGKILL.
    pub grace: Millis,
    /// See [`pool::Qos::idle_release`].
    pub idle_release: Option<Millis>,
}

impl Terms {
    fn qos(&self, qos: Qos) -> pool::Qos {
        let unit = u64::try_from(self.duration_unit.as_millis()).unwrap_or(u64::MAX);
        pool::Qos {
            preempt_enabled: qos.preempt_enabled,
            pod_max_duration: Millis(unit.saturating_mul(u64::from(qos.pod_max_duration_minutes))),
            grace: self.grace,
            idle_release: self.idle_release,
        }
    }
}

/// What holds on this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sharing {
    policy: Option<pool::Policy>,
    qos: pool::Qos,
}

/// The node of this agent.
pub(super) struct NodeWatch {
    pub(super) client: Client,
    pub(super) name: String,
    pub(super) terms: Terms,
    pub(super) task: mpsc::Sender<AgentEvent>,
    /// Told the policy in force as soon as the API server says it, and whenever it changes.
    pub(super) policy: watch::Sender<Known>,
    /// The pool's cards, to be written on the node.
    pub(super) cards: watch::Receiver<Vec<PoolCard>>,
}

/// The node as it was seen last.
#[derive(Debug, Default)]
struct LastSeen {
    there: bool,
    /// The annotation with the cards.
    cards: Option<String>,
    /// What the pool's task was told.
    sharing: Option<Sharing>,
}

/// The policy in force, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// The API server has not answered yet, and nothing is kept of an earlier agent.
    NotYet,
    /// This; `None`: cards are not shared.
    Policy(Option<pool::Policy>),
}

impl NodeWatch {
    /// Follows the node until the agent goes down.
    pub(super) async fn follow(mut self) {
        let config = watcher::Config::default().fields(&format!("metadata.name={}", self.name));
        let nodes = Api::<Node>::all(self.client.clone());
        let mut events = pin!(watcher(nodes.clone(), config).default_backoff());
        let mut outage = Outage::of("this node's object");
        let mut last = LastSeen::default();
        loop {
            tokio::select! {
                event = events.next() => match event {
                    Some(Ok(event)) => {
                        outage.is_over();
                        self.seen(event, &mut last).await;
                    }
                    Some(Err(failure)) => outage.begins(&failure),
                    None => return,
                },
                changed = self.cards.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(AGAIN) => {}
            }
            self.write_cards(&nodes, &mut last).await;
        }
    }

    async fn seen(&self, event: Event<Node>, last: &mut LastSeen) {
        match event {
            Event::Apply(node) | Event::InitApply(node) => {
                let annotation = |name: &str| node.metadata.annotations.as_ref()?.get(name).cloned();
                *last = LastSeen { there: true, cards: annotation(POOL_CARDS_ANNOTATION), ..*last };
                let sharing = self.sharing(&node, last.sharing);
                if last.sharing != Some(sharing) {
                    last.sharing = Some(sharing);
                    let input = AgentEvent::Sharing { policy: sharing.policy, qos: Some(sharing.qos) };
                    // The pool's task is gone when the agent goes down.
                    let _ = self.task.send(input).await;
                    self.policy.send_replace(Known::Policy(sharing.policy));
                }
            }
            Event::InitDone if last.sharing.is_none() => {
                info!("there is no node {} in the cluster yet: nothing is shared", self.name);
                self.policy.send_replace(Known::Policy(None));
            }
            // Pods that are here stay here; what holds for them is not taken back.
            Event::Delete(_) => last.there = false,
            Event::Init | Event::InitDone => {}
        }
    }

    fn sharing(&self, node: &Node, before: Option<Sharing>) -> Sharing {
        let meta = &node.metadata;
        let label = meta.labels.as_ref().and_then(|labels| labels.get(POLICY_IN_FORCE_LABEL));
        let policy = match Policy::in_force(label.map(String::as_str)) {
            Policy::None => None,
            Policy::SharePool => Some(pool::Policy::SharePool),
            Policy::Static => Some(pool::Policy::Static),
        };
        let text = meta.annotations.as_ref().and_then(|all| all.get(QOS_IN_FORCE_ANNOTATION));
        let qos = match text.map(|text| Qos::parse(text)) {
            None => self.terms.qos(Qos::default()),
            Some(Ok(qos)) => self.terms.qos(qos),
            Some(Err(failure)) => {
                warn!("{failure}; the settings before it go on");
                before.map_or_else(|| self.terms.qos(Qos::default()), |before| before.qos)
            }
        };
        Sharing { policy, qos }
    }

    /// Writes the cards on the node where they stand there otherwise.
    async fn write_cards(&mut self, nodes: &Api<Node>, last: &mut LastSeen) {
        let wanted = cards::write(&self.cards.borrow_and_update());
        if !last.there || last.cards.as_deref() == Some(&wanted) {
            return;
        }
        let patch = json!({"metadata": {"annotations": {(POOL_CARDS_ANNOTATION): wanted}}});
        match nodes.patch(&self.name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => last.cards = Some(wanted),
            Err(failure) => {
                warn!("cannot write the cards on node {}: {}", self.name, causes(&failure));
            }
        }
    }
}

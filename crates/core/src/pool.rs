//! The pool: the cards of one node, the pods on it and the queue between them.
//!
//! One owner feeds it events and carries out the actions that come back; between two events nothing happens.
//!
//! ```text
//!                      GpuWanted                  granted
//!        hibernating ─────────────▶   ready   ─────────────▶  running
//!             ▲  ▲       WantGone       │                        │
//!             │  └──────────────────────┘                        │
//!             └──────────────────────────────────────────────────┘
//!                Released (by itself, or after Terminate and perhaps Kill)
//! ```
//!
//! - **ready → running**: the head of the queue, as soon as a card has room for its *limits* beside those of the
//!   pods that run there (see [`Action::Grant`]). After every event the queue is gone through until nothing more
//!   fits. Requests play no part in it: they bound how many pods are on the node ([`Refusal::NoRoom`]).
//! - **running → hibernating**: only when the release is confirmed. Until then the share stays charged, whatever
//!   the pod was told.
//! - **Removal** at any moment: a pod that holds nothing is gone at once, one that runs stays, *leaving*, until its
//!   lease is over, and its name is taken until then.
//! - **Lost cards**: their pods are told to go and hibernate like others. Who waits for a lost card keeps its place
//!   and holds up nobody.
//! - **Occupied cards** ([`Occupants`]) are as lost ones to whoever waits, and their leases stay. Where nobody knows who is
//!   on the cards, nothing is granted at all ([`Event::CardsUnseen`]).
//!
//! The queue is described in `queue.rs`, making room in `preempt.rs`.

mod action;
mod change;
mod clearing;
mod config;
mod event;
mod fit;
mod health;
mod ident;
mod invariants;
mod load;
mod membership;
mod occupants;
mod pods;
mod preempt;
mod queue;
mod refusal;
mod smallest;
mod snapshot;
mod state;
mod time;
mod turn;
mod view;

use std::collections::BTreeMap;

pub use action::{Action, TerminationReason};
pub use change::{Change, Rebuilt};
pub use config::{Card, Config, Limits, PodSpec, Policy, Qos};
pub use event::Event;
pub use ident::{CardUuid, LeaseId, PodId};
pub use invariants::Violation;
pub use occupants::Occupants;
pub use preempt::STUCK_AFTER;
pub use refusal::{Refusal, Resource};
pub use snapshot::Snapshot;
pub use state::{Ending, PodState};
pub use time::{Millis, Timestamp};
pub use view::{CardView, LeaseView, PodView, QueueView};

use fit::CardRecord;
use ident::PodSlot;
use pods::Pods;
use queue::Lane;

/// The whole pool of one node.
#[derive(Debug, Clone)]
pub struct Pool {
    policy: Policy,
    check_requests: bool,
    qos: Qos,
    now: Timestamp,
    /// Nothing is granted, because nobody knows who is on the cards.
    unseen: bool,
    /// Never shrinks; a [`ident::CardSlot`] is a place in it.
    cards: Vec<CardRecord>,
    pods: Pods,
    /// One under `share-pool`, one for each card under `static`.
    lanes: Vec<Lane>,
    /// What leases that are coming to their end are due for.
    due: BTreeMap<(Timestamp, LeaseId), PodSlot>,
    next_number: u64,
    next_lease: u64,
}

impl Pool {
    /// An empty pool over `config.cards`. Refused when two cards share a UUID.
    pub fn new(config: Config) -> Result<Self, Refusal> {
        let mut pool = Self {
            policy: config.policy,
            check_requests: config.check_requests,
            qos: config.qos,
            now: Timestamp(0),
            unseen: false,
            cards: Vec::new(),
            pods: Pods::default(),
            lanes: Vec::new(),
            due: BTreeMap::new(),
            next_number: 1,
            next_lease: 1,
        };
        if pool.policy == Policy::SharePool {
            pool.lanes.push(Lane::default());
        }
        for card in config.cards {
            pool.card_added(card)?;
        }
        Ok(pool)
    }

    /// Takes in what happened at `now` and says what to do about it, in order.
    ///
    /// Time never goes back: an earlier `now` than before counts as the latest seen. A refused event changes
    /// nothing, not even the time; whatever was due then is done with the next event.
    pub fn step(&mut self, now: Timestamp, event: Event) -> Result<Vec<Action>, Refusal> {
        let mut out = Vec::new();
        self.pods.forget_touched();
        let before = self.now;
        self.now = now.max(before);
        if let Err(refusal) = self.take_in(event, &mut out) {
            self.now = before;
            return Err(refusal);
        }
        self.expire(&mut out);
        self.pass(&mut out);
        // With a grace of nothing, those who were just told to go are due at once.
        self.expire(&mut out);
        Ok(out)
    }

    fn take_in(&mut self, event: Event, out: &mut Vec<Action>) -> Result<(), Refusal> {
        match event {
            Event::PodAdded { pod, spec } => self.pod_added(pod, spec),
            Event::PodChanged { pod, spec } => self.pod_changed(&pod, spec, out),
            Event::PodRemoved { pod } => self.pod_removed(&pod, out),
            Event::GpuWanted { pod, only } => self.gpu_wanted(&pod, only.as_ref()),
            Event::WantGone { pod } => self.want_gone(&pod),
            Event::Released { pod, lease } => self.released(&pod, lease, out),
            Event::Idle { pod, idle } => self.idle(&pod, idle),
            Event::CardLost { card } => self.card_lost(&card, out),
            Event::CardBack { card } => self.card_back(&card),
            Event::CardAdded { card } => self.card_added(card),
            Event::CardRenumbered { card, index } => self.card_renumbered(&card, index),
            Event::CardsSeen { occupied } => self.cards_seen(occupied),
            Event::CardsUnseen => {
                self.unseen = true;
                Ok(())
            }
            Event::QosChanged { qos } => {
                self.qos = qos;
                Ok(())
            }
            Event::Tick => Ok(()),
        }
    }

    /// When to call [`Pool::step`] with [`Event::Tick`] at the latest; `None`: not before the next event.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let due = self.due.keys().next().map(|(moment, _)| *moment);
        let room = (0..self.lanes.len()).filter_map(|lane| self.room_at(lane));
        due.into_iter().chain(room).min()
    }
}

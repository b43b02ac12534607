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

mod action;
mod config;
mod event;
mod ident;
mod refusal;
mod view;

pub use action::{Action, Why};
pub use config::{Card, Config, Limits, PodSpec, Policy, Qos};
pub use event::Event;
pub use ident::{CardUuid, LeaseId, Millis, PodId};
pub use refusal::{Refusal, Resource};
pub use view::{CardView, Ending, LeaseView, PodState, PodView, QueueView};

/// The whole pool of one node.
#[derive(Debug, Clone)]
pub struct Pool {
    config: Config,
}

impl Pool {
    /// An empty pool over `config.cards`. Refused when two cards share a UUID or an index.
    pub fn new(config: Config) -> Result<Self, Refusal> {
        Ok(Self { config })
    }

    /// Takes in what happened at `now` and says what to do about it, in order.
    ///
    /// Time never goes back: an earlier `now` than before counts as the latest seen. A refused event changes
    /// nothing, not even the time; whatever was due then is done with the next event.
    pub fn step(&mut self, _now: Millis, _event: Event) -> Result<Vec<Action>, Refusal> {
        Ok(Vec::new())
    }

    /// When to call [`Pool::step`] with [`Event::Tick`] at the latest; `None`: not before the next event.
    pub fn next_deadline(&self) -> Option<Millis> {
        None
    }

    /// Where the pod stands; `None` when it isn't known.
    pub fn state(&self, _pod: &PodId) -> Option<PodState> {
        None
    }

    /// Everything about one pod; `None` when it isn't known.
    pub fn pod(&self, _pod: &PodId) -> Option<PodView<'_>> {
        None
    }

    /// All pods, in name order, those included that were removed and whose lease is not over.
    pub fn pods(&self) -> impl Iterator<Item = PodView<'_>> {
        std::iter::empty()
    }

    /// The pod's place in the queue, from 1; `None` when it doesn't wait.
    pub fn position(&self, _pod: &PodId) -> Option<u32> {
        None
    }

    /// The queue from its head; under [`Policy::Static`] one card's after the other's, by card index.
    pub fn queue(&self) -> impl Iterator<Item = QueueView<'_>> {
        std::iter::empty()
    }

    /// All cards, by index.
    pub fn cards(&self) -> impl Iterator<Item = CardView<'_>> {
        std::iter::empty()
    }

    /// All leases, by number.
    pub fn leases(&self) -> impl Iterator<Item = LeaseView<'_>> {
        std::iter::empty()
    }

    /// The card that the pod holds, or the one that it would most likely get now; `None` when the pod isn't known
    /// or no card is healthy.
    pub fn likeliest_card(&self, _pod: &PodId) -> Option<&CardUuid> {
        None
    }

    /// The quality of service in force.
    pub fn qos(&self) -> Qos {
        self.config.qos
    }

    /// How the cards are shared.
    pub fn policy(&self) -> Policy {
        self.config.policy
    }

    /// The latest moment the pool has been told.
    pub fn now(&self) -> Millis {
        Millis(0)
    }

    /// All that the pool knows, to be written down. [`Pool::restore`] gives a pool that behaves the same.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { config: self.config.clone() }
    }

    /// The pool that `snapshot` was taken of. Refused when the snapshot contradicts itself, as after a damaged
    /// journal.
    pub fn restore(snapshot: Snapshot) -> Result<Self, Violation> {
        Ok(Self { config: snapshot.config })
    }

    /// Whether everything holds that must hold after every event.
    pub fn check_invariants(&self) -> Result<(), Violation> {
        Ok(())
    }
}

/// A pool's state, written down. Its fields are the pool's own business.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Snapshot {
    config: Config,
}

/// Something that must hold does not: a defect of the pool, or a damaged snapshot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the pool's state contradicts itself: {what}")]
pub struct Violation {
    /// What is wrong, with names and numbers.
    pub what: String,
}

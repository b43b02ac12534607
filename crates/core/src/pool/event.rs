//! What the agent tells the pool.

use std::collections::BTreeMap;

use super::config::{Card, PodSpec, Qos};
use super::ident::{CardUuid, LeaseId, PodId};
use super::occupants::Occupants;

/// Something that happened. Each is handled whole, before the next.
///
/// Events come from a world that crosses messages: a repeated, late or mistaken one is either without effect or
/// refused, as each says, and a refused event changes nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub enum Event {
    /// A pod has come to the node; it hibernates. Refused when the name is taken, also by a removed pod whose
    /// lease is not over yet, and when there is no room for its requests.
    PodAdded {
        /// By this name the pod is known until its last lease is over.
        pod: PodId,
        /// Its shares, its priority and, under `static`, its card.
        spec: PodSpec,
    },
    /// A pod asks for something else.
    ///
    /// Hibernating and waiting pods: at once; a waiting pod keeps its number. A running pod: less core counts at
    /// once; more core or memory counts at once where its card has room and nobody waits, else from its next
    /// lease; less memory counts from its next lease, because what is allocated can't be taken back. The card of
    /// a `static` pod can't be changed; `card: None` keeps it. Refused when the larger requests find no room.
    PodChanged {
        /// The pod, as [`Event::PodAdded`] named it.
        pod: PodId,
        /// What it asks for now, whole.
        spec: PodSpec,
    },
    /// A pod has gone from the node, or was stopped. One that runs is told to terminate, and its lease stays
    /// charged until [`Event::Released`]; until then the name is taken. Without effect when said twice meanwhile.
    PodRemoved {
        /// The pod, as [`Event::PodAdded`] named it.
        pod: PodId,
    },
    /// A pod uses a GPU and holds none: it becomes ready. Where it already waits, `only` is replaced and its
    /// place kept. Where it runs, nothing happens (its other processes share the lease); where it runs and has
    /// been told to terminate, it becomes ready at the moment its lease is over.
    GpuWanted {
        /// The pod, as [`Event::PodAdded`] named it.
        pod: PodId,
        /// The one card that will do, because living processes of the pod are bound to it. What was said last
        /// counts, for the pod as a whole. A pod that waits for a lost card holds up nobody.
        only: Option<CardUuid>,
    },
    /// None of the pod's processes waits any more: a ready pod hibernates again. Without effect on others. A
    /// grant that crossed with it ends, as every lease, with [`Event::Released`].
    WantGone {
        /// The pod, as [`Event::PodAdded`] named it.
        pod: PodId,
    },
    /// The last GPU process that used the lease is confirmed gone, or the last context with all its memory.
    /// Refused when the pod doesn't hold that lease.
    Released {
        /// The pod, as [`Event::PodAdded`] named it.
        pod: PodId,
        /// The lease: a late message about an old one must not end a new one.
        lease: LeaseId,
    },
    /// A running pod began or ceased to be idle (nothing submitted for a while, no utilisation). Without effect
    /// on a pod that doesn't run. A new lease begins busy.
    Idle {
        /// The pod, as [`Event::PodAdded`] named it.
        pod: PodId,
        /// Whether it is idle now.
        idle: bool,
    },
    /// A card doesn't work any more. Its pods are told to terminate; nobody gets it. Without effect when it is
    /// lost already.
    CardLost {
        /// The card, as [`super::Config::cards`] or [`Event::CardAdded`] named it.
        card: CardUuid,
    },
    /// A lost card works again. Without effect when it wasn't lost.
    CardBack {
        /// The card, as [`super::Config::cards`] or [`Event::CardAdded`] named it.
        card: CardUuid,
    },
    /// A card that wasn't there. Refused when its UUID is known.
    CardAdded {
        /// The card.
        card: Card,
    },
    /// The machine numbers a card differently now, as after others went or came. Two cards may have the same index
    /// meanwhile: the one that was in the pool first then comes first.
    CardRenumbered {
        /// The card, as [`super::Config::cards`] or [`Event::CardAdded`] named it.
        card: CardUuid,
        /// NVML's index from now on.
        index: u32,
    },
    /// Who is on the cards without a right to it: nobody new is let in beside them until this is said again without
    /// them. Leases that hold stay. Refused when it names an unknown card.
    CardsSeen {
        /// Every card on which somebody is who must not be, and who; the others have nobody.
        occupied: BTreeMap<CardUuid, Occupants>,
    },
    /// Nobody knows any more who is on the cards: until [`Event::CardsSeen`] nothing is granted and nobody is asked to
    /// make room.
    CardsUnseen,
    /// Other quality of service. Who was told to terminate before goes on terminating, with the grace it was
    /// given, also when pre-emption is switched off.
    QosChanged {
        /// The new settings, whole.
        qos: Qos,
    },
    /// Time has passed: at least to [`super::Pool::next_deadline`].
    Tick,
}

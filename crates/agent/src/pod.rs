//! A pod of a cluster as far as the agent is concerned: which object it is, and what it asks for.

use gpupool_core::pool::{CardUuid, PodId, Policy};
use gpupool_core::share::Share;
use serde::{Deserialize, Serialize};

/// Where the hyphens of a UUID are.
const HYPHENS: [usize; 4] = [8, 13, 18, 23];

/// Length of a UUID with its hyphens.
const UUID: usize = 36;

/// Length of the hash that stands for the UID of a static pod.
const HASH: usize = 32;

/// A pod of a cluster by what the kubelet calls its cgroup after: the object's UID, as the API server makes them, or a
/// [`static_pod_hash`]. Nothing where the text is neither.
pub(crate) fn cluster_pod_id(text: &str) -> Option<PodId> {
    let hyphen = |at: usize| HYPHENS.contains(&at);
    let is_uuid = text.len() == UUID
        && text.bytes().enumerate().all(|(at, byte)| if hyphen(at) { byte == b'-' } else { is_hex(byte) });
    if is_uuid { Some(text.into()) } else { static_pod_hash(text) }
}

/// A static pod by the hash that its kubelet makes of the manifest: 32 hexadecimal digits.
pub(crate) fn static_pod_hash(text: &str) -> Option<PodId> {
    (text.len() == HASH && text.bytes().all(is_hex)).then(|| text.into())
}

fn is_hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

/// Which object a pod is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PodRef {
    /// Its namespace.
    pub(crate) namespace: String,
    /// Its name there.
    pub(crate) name: String,
    /// The object's UID: another pod under the same name has another.
    pub(crate) uid: String,
}

impl std::fmt::Display for PodRef {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}/{}", self.namespace, self.name)
    }
}

/// A pod of this node that asks for a share of a card, rightly or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodOnNode {
    /// What its cgroup is called after.
    pub(crate) id: PodId,
    /// The object.
    pub(crate) reference: PodRef,
    /// What it asks for, or why it can't have it.
    pub(crate) asks: Result<Asks, Rejection>,
    /// Its condition says that it was turned away.
    pub(crate) turned_away: bool,
    /// The card in its annotation.
    pub(crate) card: Option<CardUuid>,
}

/// What a pod asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Asks {
    /// The policy of the nodes that it is for.
    pub(crate) policy: Policy,
    /// Of a card's computing time.
    pub(crate) core: Share,
    /// Of a card's memory.
    pub(crate) memory: Share,
    /// Higher goes first in the queue.
    pub(crate) priority: i32,
    /// `static`: the card that was chosen for it, where one was.
    pub(crate) card: Option<CardUuid>,
}

/// What a pod asked for when it was first seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum FirstSpec {
    /// This.
    Asked(Asks),
    /// Nothing that it can have.
    Invalid,
}

/// Why a pod has no place in the pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rejection {
    /// One word, for the condition.
    pub(crate) reason: &'static str,
    /// What is wrong and what to do.
    pub(crate) sentence: String,
}

impl Rejection {
    pub(crate) fn new(reason: &'static str, sentence: String) -> Self {
        Self { reason, sentence }
    }
}

/// Who makes a pod anew that the kubelet has turned away for good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Maker {
    /// Nobody but its owner.
    Nobody,
    /// This controller, by kind and name, and under another name.
    Controller(String),
    /// The kubelet itself: it is a static pod.
    Kubelet,
}

/// What the API server says about this node's pods.
#[derive(Debug)]
pub(crate) enum PodNews {
    /// The pod is there, like this.
    Present(PodOnNode),
    /// It has finished, or is not there any more.
    Gone {
        /// What its cgroup is called after.
        id: PodId,
        /// The object's UID.
        uid: String,
    },
    /// These are there, and no others.
    Listed(Vec<PodOnNode>),
    /// The kubelet has turned it away for good, because nobody had registered a card that works.
    NotAdmitted {
        /// The object.
        pod: PodRef,
        /// Who makes it anew.
        maker: Maker,
    },
}

//! How things stand, as `gpupool status --output json` prints it. `docs/status-schema.md` says the same for readers
//! outside; a test compares the two.

use std::fmt;

use gpupool_core::pool::{PodState, Policy};
use gpupool_core::share::Share;
use serde::{Deserialize, Serialize};

pub use crate::usage_audit::WhyNotHeld;

/// Everything about one agent's cards and pods, of one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Version of this form: 1. Grows when a field changes its meaning or goes; new fields don't count.
    pub version: u32,
    /// The name under which the metrics know this machine.
    pub node: String,
    /// True when the cards are simulated.
    pub simulated: bool,
    /// How the cards are shared.
    pub policy: Policy,
    /// When pods make room.
    pub qos: QosStatus,
    /// The cards by index.
    pub cards: Vec<CardStatus>,
    /// The leases, the oldest grant first.
    pub leases: Vec<LeaseStatus>,
    /// The queue from its head.
    pub queue: Vec<QueueStatus>,
    /// All pods by name.
    pub pods: Vec<PodStatus>,
    /// Processes of no pod that use one of the cards: reported, never touched.
    pub strangers: Vec<StrangerStatus>,
}

/// When pods make room for others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QosStatus {
    /// Whether a pod that has held a card long enough makes room.
    pub preempt_enabled: bool,
    /// How long a pod holds a card undisturbed, in seconds.
    pub pod_max_duration_seconds: f64,
    /// Between SIGTERM and SIGKILL, in seconds.
    pub grace_seconds: f64,
    /// After how long an idle pod makes room, in seconds; `null`: never.
    pub idle_release_seconds: Option<f64>,
}

/// One card.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CardStatus {
    /// Its number on this machine; may change from boot to boot.
    pub index: u32,
    /// What it is known by.
    pub uuid: String,
    /// The model.
    pub name: String,
    /// True while it does not work.
    pub lost: bool,
    /// All of its memory, in bytes.
    pub memory_total_bytes: u64,
    /// Core taken by the limits of running pods, in percent.
    pub core_used_percent: u32,
    /// Memory taken by the limits of running pods, in percent.
    pub memory_used_percent: u32,
    /// Names of the pods that hold it, in the order of their grants.
    pub pods: Vec<String>,
    /// Why it, or a pod's share of it, is held back from others whatever the leases leave.
    pub held_back: Vec<HeldBackStatus>,
}

/// Who keeps others off a card, by what NVML shows there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldBackStatus {
    /// Why.
    pub why: WhyHeldBack,
    /// The pod; `null` where it is none.
    pub pod: Option<String>,
    /// Its processes on the card.
    pub pids: Vec<u32>,
    /// Memory that they take there, in bytes; `null` where NVML does not say.
    pub memory_bytes: Option<u64>,
    /// What the pod's lease allows, in bytes; only where that is exceeded.
    pub limit_bytes: Option<u64>,
}

/// Why a card is held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WhyHeldBack {
    /// NVML has not said who uses the card.
    NotSeen,
    /// Processes of no pod use it.
    Stranger,
    /// A pod uses it without a lease.
    NoLease,
    /// A pod takes more of its memory than its lease allows.
    OverLimit,
    /// A pod has said that it needs it no more, and uses it still: its lease goes on.
    KeptAfterRelease,
}

impl WhyHeldBack {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::NotSeen, Self::Stranger, Self::NoLease, Self::OverLimit, Self::KeptAfterRelease];

    /// The reason as one word that never changes, for metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::NotSeen => "not-seen",
            Self::Stranger => "stranger",
            Self::NoLease => "no-lease",
            Self::OverLimit => "over-limit",
            Self::KeptAfterRelease => "kept-after-release",
        }
    }
}

/// What follows the pod's name.
impl fmt::Display for TerminationStatus {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.killed { "did not end when told to and were killed" } else { "were told to end" };
        write!(out, "its GPU programs {how}: {} ({})", self.why, self.reason)
    }
}

/// What follows "card 0 is held back: ".
impl fmt::Display for HeldBackStatus {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.why == WhyHeldBack::NotSeen {
            return out.write_str("NVML has not said who uses it");
        }
        let pids: Vec<String> = self.pids.iter().map(u32::to_string).collect();
        let (noun, takes) = if pids.len() == 1 { ("process", "takes") } else { ("processes", "take") };
        write!(out, "{noun} {} of {} {takes} ", pids.join(", "), self.pod.as_deref().unwrap_or("no pod"))?;
        match self.memory_bytes {
            Some(bytes) => write!(out, "{} MiB of it", bytes >> 20)?,
            None => out.write_str("some of it")?,
        }
        match (self.why, self.limit_bytes) {
            (WhyHeldBack::OverLimit, Some(limit)) => write!(out, ", and the limit is {} MiB", limit >> 20),
            (WhyHeldBack::NoLease, _) => out.write_str(" without a lease"),
            (WhyHeldBack::KeptAfterRelease, _) => {
                out.write_str(", and the pod has said that it needs it no more")
            }
            _ => Ok(()),
        }
    }
}

/// A pod's right to a card.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaseStatus {
    /// The pod's name.
    pub pod: String,
    /// The lease's number.
    pub lease: u64,
    /// Index of the card.
    pub card: u32,
    /// What the card is known by.
    pub card_uuid: String,
    /// How long it has been held, in seconds.
    pub age_seconds: f64,
    /// Core limit, percent of the card.
    pub core_limit_percent: u32,
    /// Memory limit, percent of the card.
    pub memory_limit_percent: u32,
    /// Memory limit in bytes.
    pub memory_limit_bytes: u64,
    /// Memory that the pod's processes take, in bytes; `null` until a restarted agent knows it again.
    pub memory_used_bytes: Option<u64>,
    /// How long nothing has been submitted, in seconds; `null` when the pod works.
    pub idle_seconds: Option<f64>,
    /// Set once the pod was told to terminate.
    pub ending: Option<EndingStatus>,
}

/// A lease that comes to its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndingStatus {
    /// The sentence that the pod's owner reads.
    pub why: String,
    /// Seconds until its processes are killed; 0 when that was ordered.
    pub kill_in_seconds: f64,
}

/// A pod that waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueStatus {
    /// The pod's name.
    pub pod: String,
    /// 1 is next.
    pub position: u32,
    /// How long it has been waiting, in seconds.
    pub waiting_seconds: f64,
}

/// One pod.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodStatus {
    /// Its name.
    pub name: String,
    /// Where it stands.
    pub state: PodState,
    /// What it asks for of a card's computing time.
    pub core: Share,
    /// What it asks for of a card's memory.
    pub memory: Share,
    /// Higher goes first in the queue.
    pub priority: i32,
    /// The id of its `gpupool run`; `null` when that has ended.
    pub run_pid: Option<u32>,
    /// Ids of its processes that have opened the GPU driver.
    pub pids: Vec<u32>,
    /// True once it was told to stop.
    pub stopping: bool,
    /// How it is held to its limits.
    pub hold: HoldStatus,
    /// Set once this agent has ended processes of it: why, the last time.
    pub termination: Option<TerminationStatus>,
}

/// Why processes of a pod were ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TerminationStatus {
    /// The word that Events and conditions of a cluster have for it.
    pub reason: String,
    /// The sentence that the pod's owner reads.
    pub why: String,
    /// Whether they outlived the grace and were killed.
    pub killed: bool,
    /// How long ago they were told to go, in seconds.
    pub ago_seconds: f64,
}

/// How strongly a pod is held, by what NVML showed in the last second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HoldStatus {
    /// To its memory limit.
    pub memory: Hold,
    /// To its core limit.
    pub core: Hold,
    /// Memory that NVML shows of its processes and its ledger does not count, in bytes; `null` where either is not
    /// known.
    pub unaccounted_bytes: Option<u64>,
    /// Its GPU processes that nothing holds.
    pub not_held: Vec<NotHeldStatus>,
}

/// What holds a pod to a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Hold {
    /// Nothing is needed: it has no GPU process.
    Unused,
    /// Nothing is needed: its limit is the whole card.
    Unlimited,
    /// The shim, in every GPU process of the pod.
    Shim,
    /// The shim, in some of them only.
    Partly,
    /// Nothing.
    Nothing,
}

/// A GPU process that nothing holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NotHeldStatus {
    /// Its id.
    pub pid: u32,
    /// Index of the card.
    pub card: u32,
    /// Memory that it takes there, in bytes; `null` where NVML does not say.
    pub memory_bytes: Option<u64>,
    /// Why it is not held.
    pub why: WhyNotHeld,
}

/// A process of no pod on a card of the pool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StrangerStatus {
    /// Its id.
    pub pid: u32,
    /// Index of the card.
    pub card: u32,
    /// Memory that it takes there, in bytes; `null` where NVML does not say.
    pub memory_bytes: Option<u64>,
}

//! The names by which sharing is asked for and shown: labels, annotations, resources, conditions, events.
//!
//! Those of `alibabacloud.com` and the conditions, reasons and messages are fixed by the published page; those of
//! `gpupool.io` are this product's own.

pub use crate::names::CONTAINER as EXCLUSIVE_RESOURCE;

/// Label: on a node, the share policy that somebody wants there; on a pod, the policy of the nodes it is for.
pub const POLICY_LABEL: &str = "alibabacloud.com/gpu-share-policy";
/// Node annotation: how the sharing is to behave, as a JSON object.
pub const QOS_ANNOTATION: &str = "alibabacloud.com/gpu-share-qos-config";
/// Label of pods that share.
pub const COMPUTE_CLASS_LABEL: &str = "alibabacloud.com/compute-class";
/// The only value of [`COMPUTE_CLASS_LABEL`] with which a pod may share.
pub const COMPUTE_CLASS: &str = "gpu-hpn";

/// Resource: percent of one card's computing power.
pub const CORE_RESOURCE: &str = "alibabacloud.com/gpu-core.percentage";
/// Resource: percent of one card's memory.
pub const MEMORY_RESOURCE: &str = "alibabacloud.com/gpu-memory.percentage";

/// Node label, written by gpupool: the policy in force, `share-pool` or `static`. Absent where nothing is shared.
pub const POLICY_IN_FORCE_LABEL: &str = "gpupool.io/share-policy";
/// Node annotation, written by gpupool: the quality of service in force, as JSON with every key.
pub const QOS_IN_FORCE_ANNOTATION: &str = "gpupool.io/share-qos";
/// Pod annotation: the limit on computing power, in percent of one card. Absent where it is the request.
pub const CORE_LIMIT_ANNOTATION: &str = "gpupool.io/gpu-core.limit";
/// Namespace annotation: the highest limit on computing power that a pod there may have, in percent of one card. With
/// `.share-pool` or `.static` behind it, for pods of that policy.
pub const CORE_CEILING_ANNOTATION: &str = "gpupool.io/gpu-core.max-limit";
/// Namespace annotation: the same for memory.
pub const MEMORY_CEILING_ANNOTATION: &str = "gpupool.io/gpu-memory.max-limit";
/// Pod annotation: the limit on memory, in percent of one card. Absent where it is the request.
pub const MEMORY_LIMIT_ANNOTATION: &str = "gpupool.io/gpu-memory.limit";
/// Pod annotation, written by a kubelet: the object mirrors the static pod of its node with this id.
pub const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";
/// Pod annotation, written by gpupool: the UUID of a `static` pod's card.
pub const CARD_ANNOTATION: &str = "gpupool.io/card";
/// Node annotation, written by the agent: the cards of the node's pool, as JSON.
pub const POOL_CARDS_ANNOTATION: &str = "gpupool.io/pool-cards";
/// Node annotation, written by gpupool: what is reserved of the node, as JSON.
pub const RESERVED_ANNOTATION: &str = "gpupool.io/reserved";
/// Node annotation, written by gpupool: the last values that the kubelet itself sent for what is reserved.
pub const KUBELET_ALLOCATABLE_ANNOTATION: &str = "gpupool.io/kubelet-allocatable";

/// Node condition: whether what the label and the annotation ask for can be followed.
pub const POLICY_VALID_CONDITION: &str = "GPUSharePolicyValid";
/// Node condition: the policy in force, which is its reason.
pub const POLICY_CONDITION: &str = "GPUSharePolicy";
/// Pod condition: a card was taken from another pod for this one, or from this one for another.
pub const RECLAIM_CONDITION: &str = "Interruption.GPUShareReclaim";
/// Reason of [`RECLAIM_CONDITION`] and of an Event, on the pod that lost its card.
pub const PREEMPTED: &str = "GPUSharePreempted";
/// Reason of [`RECLAIM_CONDITION`] and of an Event, on the pod that got the card.
pub const PREEMPT: &str = "GPUSharePreempt";
/// Pod condition, written by the agent where a pod has no place in its node's pool: the message says why and what to do.
pub const ACCEPTED_CONDITION: &str = "GPUShareAccepted";
/// Reason of an Event, on such a pod.
pub const REFUSED: &str = "GPUShareRefused";
/// Reason of an Event, on a pod that its kubelet has turned away for good because no card that works was registered.
pub const NOT_ADMITTED: &str = "GPUShareNotAdmitted";
/// Reason of an Event, on a pod that takes device memory which its ledger does not count.
pub const UNACCOUNTED: &str = "GPUShareUnaccountedMemory";
/// Reason of an Event, on a pod with a GPU process that nothing holds to the pod's limits.
pub const NOT_HELD: &str = "GPUShareNotHeld";
/// Pod condition: its GPU processes were told to go, for a reason other than a pre-emption. On the pod for which an idle one
/// makes room, too.
pub const TERMINATION_CONDITION: &str = "Interruption.GPUShareTermination";
/// Reason of [`TERMINATION_CONDITION`] and of an Event: another pod waits for the card, and this one was idle.
pub const IDLE_RELEASED: &str = "GPUShareIdleReleased";
/// Reason of [`TERMINATION_CONDITION`] and of an Event, on the pod that waits for that card.
pub const IDLE_RELEASE: &str = "GPUShareIdleRelease";
/// Reason of [`TERMINATION_CONDITION`] and of an Event: the card does not work any more.
pub const CARD_LOST: &str = "GPUShareCardLost";
/// Reason of [`TERMINATION_CONDITION`] and of an Event: the pod is gone or has finished, and its processes are not.
pub const STOPPED: &str = "GPUShareStopped";
/// Reason of [`TERMINATION_CONDITION`] and of an Event: the pod took more memory than its limit past its ledger.
pub const EVICTED: &str = "GPUShareEvicted";
/// Pod condition: its GPU processes did not go within the grace and were killed, for whatever reason.
pub const KILL_CONDITION: &str = "Interruption.GPUShareKill";
/// Reason of [`KILL_CONDITION`] and of an Event.
pub const KILLED: &str = "GPUShareKilled";
/// Who Events about sharing come from.
pub const EVENT_SOURCE: &str = "gpushare";

/// The namespace in which gpupool is installed, unless somebody chose another.
pub const NAMESPACE: &str = "gpupool-system";
/// The name of the agent's `DaemonSet` and of its service account.
pub const AGENT: &str = "gpupool-agent";
/// The name of the control plane's `Deployment` and of its service account.
pub const CONTROL: &str = "gpupool-control";

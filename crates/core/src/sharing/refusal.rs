//! Why a pod may not share as it asks to, in the sentence that `kubectl apply` shows.

use super::dimension::Dimension;
use super::names::{CARD_ANNOTATION, COMPUTE_CLASS, COMPUTE_CLASS_LABEL, MIRROR_ANNOTATION, POLICY_LABEL};
use super::policy::PolicyError;
use crate::names::part_of_cards;
use crate::share::Percent;

/// Why a pod or a pod template is refused.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// Not a whole number from 1 to 100.
    #[error(
        "container \"{container}\" asks for {value} of {}: ask for a whole number from 1 to 100, percent of one card",
        dimension.resource()
    )]
    NoPercentage {
        /// The container's name, in one line and at most 63 characters of it.
        container: String,
        /// The percentage that is wrong.
        dimension: Dimension,
        /// The text that was written, in one line and cut where it is long.
        value: String,
    },
    /// More is asked for than may be used.
    #[error(
        "container \"{container}\" requests {request} percent of {}, over its limit of {limit}: lower the request or raise the limit, up to 100",
        dimension.resource()
    )]
    RequestOverLimit {
        /// The container's name, in one line and at most 63 characters of it.
        container: String,
        /// The percentage that is wrong.
        dimension: Dimension,
        /// Percent of one card, 1 to 100.
        request: Percent,
        /// Percent of one card, 1 to 100.
        limit: Percent,
    },
    /// The annotation that holds a limit holds something else.
    #[error("annotation {} is \"{value}\": write a whole number from 1 to 100, or remove it", dimension.limit_annotation())]
    LimitAnnotation {
        /// The dimension whose limit it is.
        dimension: Dimension,
        /// The text that was written, in one line and cut where it is long.
        value: String,
    },
    /// Only one of the two percentages.
    #[error(
        "container \"{container}\" asks for {} but not for {}: ask for both, from 1 to 100",
        missing.other().resource(),
        missing.resource()
    )]
    OneAlone {
        /// The container's name, in one line and at most 63 characters of it.
        container: String,
        /// The percentage that is not asked for.
        missing: Dimension,
    },
    /// Two containers share.
    #[error(
        "containers \"{first}\" and \"{second}\" both ask for a share of a card, and only one container of a pod may: leave the percentages in the one that uses the GPU"
    )]
    TwoContainers {
        /// The first of them.
        first: String,
        /// The second.
        second: String,
    },
    /// An init container shares.
    #[error(
        "init container \"{container}\" asks for a share of a card: init containers can't share, ask for the percentages in the container that uses the GPU"
    )]
    InitContainer {
        /// The init container's name, in one line and at most 63 characters of it.
        container: String,
    },
    /// Whole cards and shares in one pod.
    #[error(
        "container \"{exclusive}\" asks for {} ({resource}) and container \"{sharing}\" for a share of one: a pod asks for one or the other",
        part_of_cards(resource).unwrap_or("whole cards")
    )]
    WithExclusive {
        /// The container with percentages.
        sharing: String,
        /// The container with cards, or parts of them, for itself; perhaps the same.
        exclusive: String,
        /// The resource by which it asks for them.
        resource: String,
    },
    /// The pod does not say for which nodes it is.
    #[error(
        "label {POLICY_LABEL} is missing on the pod: set it to share-pool or static, the policy of the nodes it is for"
    )]
    NoPolicyLabel,
    /// The pod is labelled for nodes that share nothing.
    #[error(
        "label {POLICY_LABEL} of the pod is none, and it asks for a share of a card: set the label to share-pool or static"
    )]
    PolicyNone,
    /// The label is no policy.
    #[error("the pod's {0}")]
    PolicyLabel(#[from] PolicyError),
    /// The label that only sharing pods need is missing.
    #[error("label {COMPUTE_CLASS_LABEL} is missing on the pod: set it to {COMPUTE_CLASS} to share a card")]
    NoComputeClass,
    /// Another compute class.
    #[error(
        "label {COMPUTE_CLASS_LABEL} of the pod is \"{value}\": only pods of class {COMPUTE_CLASS} can share a card"
    )]
    ComputeClass {
        /// The text that was written, in one line and cut where it is long.
        value: String,
    },
    /// The card is not the user's to choose.
    #[error(
        "annotation {CARD_ANNOTATION} is written by gpupool alone, when it chooses the pod's card: leave it as it is, or out of a new pod"
    )]
    CardAnnotation,
    /// A pod stays with the policy that it came for.
    #[error(
        "label {POLICY_LABEL} can't be changed on a pod that shares a card: delete the pod and create it anew, or change its template"
    )]
    PolicyChanged,
    /// Only a kubelet says which static pod an object stands for.
    #[error(
        "annotation {MIRROR_ANNOTATION} is written by the kubelet of the pod's own node alone, for a static pod there: leave it out"
    )]
    MirrorAnnotation,
    /// More than the namespace's ceiling.
    #[error(
        "the limit of {} is {limit}, and annotation {annotation} of namespace \"{namespace}\" allows {most}: lower the limit",
        dimension.resource()
    )]
    OverCeiling {
        /// The dimension whose limit it is.
        dimension: Dimension,
        /// The limit that is asked for.
        limit: Percent,
        /// The highest that may be.
        most: Percent,
        /// The pod's namespace.
        namespace: String,
        /// The annotation with the ceiling.
        annotation: String,
    },
    /// The namespace's ceiling cannot be read.
    #[error(
        "annotation {annotation} of namespace \"{namespace}\" is \"{value}\", and until it is a whole number from 1 to 100 no pod there may share cards: have it corrected by whoever administers the cluster"
    )]
    CeilingUnreadable {
        /// The pod's namespace.
        namespace: String,
        /// The annotation with the ceiling.
        annotation: String,
        /// The text that was written, in one line and cut where it is long.
        value: String,
    },
    /// Not what the namespace's `LimitRange` allows.
    #[error("the limit of {} is {limit}, and LimitRange \"{range}\" allows {bound}: change the limit", dimension.resource())]
    OutOfRange {
        /// The dimension whose limit it is.
        dimension: Dimension,
        /// The limit that is asked for.
        limit: Percent,
        /// The name of the `LimitRange`.
        range: String,
        /// What it allows, such as `at most 50`.
        bound: String,
    },
    /// A pod's limit stands from its creation on.
    #[error(
        "the limit of {} is {} and can't be changed on a pod: delete the pod and create it anew, or change its template",
        dimension.resource(),
        stands(*limit)
    )]
    LimitChanged {
        /// The dimension whose limit it is.
        dimension: Dimension,
        /// The one that stands; nothing where the annotation could not be read.
        limit: Option<Percent>,
    },
}

fn stands(limit: Option<Percent>) -> String {
    limit.map_or_else(|| "set".to_owned(), |limit| limit.to_string())
}

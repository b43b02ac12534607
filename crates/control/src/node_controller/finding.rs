//! What was found about a node's use: the condition `GPUNodeUseValid`, and what goes into an Event.
//!
//! Reasons are a closed list of words, for programs; the sentence beside them is for people.

use super::observed::ObservedCondition;

/// Why the condition is as it is, or what an Event is about.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum UseReason {
    /// The node advertises what its use asks for.
    Valid,
    /// The label asks for another use than the one in effect, because the flag is off; the node is right for the
    /// use in effect.
    LabelNotRead,
    /// The label's value is none of the three.
    UnknownLabelValue,
    /// The label is there, without a value.
    EmptyLabelValue,
    /// The cluster has sandbox workloads, and the node says nothing. Only in Events.
    NoLabel,
    /// The node advertises no resource of `nvidia.com/`.
    NothingAdvertised,
    /// The node advertises a resource of another use.
    WrongResource,
    /// The node advertises more than its use allows.
    SeveralResources,
    /// The node advertises another vGPU profile than its configuration asks for.
    OtherProfile,
    /// The old name has been withdrawn, the new one has not come yet.
    ChangingUse,
    /// The annotation that names the cards cannot be read.
    CardsUnreadable,
    /// The annotation names several resources for the use; the rules allow one.
    CardsAmbiguous,
    /// The annotation names nothing for the use.
    NoCardsForUse,
    /// A kubelet runs the node, so the annotation does nothing. Only in Events.
    CardsIgnored,
    /// A name that another writer owns is in the way.
    ForeignResource,
}

impl UseReason {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::Valid,
        Self::LabelNotRead,
        Self::UnknownLabelValue,
        Self::EmptyLabelValue,
        Self::NoLabel,
        Self::NothingAdvertised,
        Self::WrongResource,
        Self::SeveralResources,
        Self::OtherProfile,
        Self::ChangingUse,
        Self::CardsUnreadable,
        Self::CardsAmbiguous,
        Self::NoCardsForUse,
        Self::CardsIgnored,
        Self::ForeignResource,
    ];

    /// `reason` of the condition and of Events: a CamelCase word from this closed list.
    pub fn word(self) -> &'static str {
        match self {
            Self::Valid => "Valid",
            Self::LabelNotRead => "LabelNotRead",
            Self::UnknownLabelValue => "UnknownLabelValue",
            Self::EmptyLabelValue => "EmptyLabelValue",
            Self::NoLabel => "NoLabel",
            Self::NothingAdvertised => "NothingAdvertised",
            Self::WrongResource => "WrongResource",
            Self::SeveralResources => "SeveralResources",
            Self::OtherProfile => "OtherProfile",
            Self::ChangingUse => "ChangingUse",
            Self::CardsUnreadable => "CardsUnreadable",
            Self::CardsAmbiguous => "CardsAmbiguous",
            Self::NoCardsForUse => "NoCardsForUse",
            Self::CardsIgnored => "CardsIgnored",
            Self::ForeignResource => "ForeignResource",
        }
    }

    /// Whether a node with this reason is as it should be.
    pub fn is_valid(self) -> bool {
        matches!(self, Self::Valid | Self::LabelNotRead)
    }

    /// Whether an Event is recorded. What comes and goes while plugins start, and steps of this controller's own, are
    /// left to the condition.
    pub fn emits_event(self) -> bool {
        !matches!(self, Self::Valid | Self::ChangingUse | Self::NothingAdvertised)
    }
}

/// What was found about a node's use, for its condition and for Events.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UseFinding {
    /// The word.
    pub reason: UseReason,
    /// The sentence: what was found, what was expected, what to do.
    pub message: String,
}

impl UseFinding {
    /// A finding: `message` says what was found, what was expected and what to do.
    pub fn new(reason: UseReason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }

    /// `status` of the condition.
    pub fn status(&self) -> &'static str {
        if self.reason.is_valid() { "True" } else { "False" }
    }

    /// Whether the condition on the node says this already.
    pub fn is_said_by(&self, current: &ObservedCondition) -> bool {
        current.status == self.status()
            && current.reason == self.reason.word()
            && current.message == self.message
    }
}

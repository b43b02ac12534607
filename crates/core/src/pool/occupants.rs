//! Who is on a card without a right to what it takes there: nobody else is let in beside them.
//!
//! The pool is told who they are; how anybody knows is not its business.

use std::collections::BTreeSet;

use super::ident::PodId;

/// Who has memory or processes on a card that no lease allows. A card with occupants is granted to nobody but an
/// occupant that is alone there; leases that hold it stay.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub struct Occupants {
    /// Pods that use the card without a lease of it, or take more of its memory than their lease allows.
    pub pods: BTreeSet<PodId>,
    /// Whether somebody is there who belongs to no pod, or of whom nothing is known.
    pub strangers: bool,
}

impl Occupants {
    /// True when nobody is there who must not be.
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty() && !self.strangers
    }

    /// True when nobody but `pod` is there who must not be.
    pub(super) fn leave_room_for(&self, pod: &PodId) -> bool {
        !self.strangers && self.others_than(pod).next().is_none()
    }

    /// The pods but `pod` that are there and must not be.
    pub(super) fn others_than(&self, pod: &PodId) -> impl Iterator<Item = &PodId> {
        self.pods.iter().filter(move |other| *other != pod)
    }
}

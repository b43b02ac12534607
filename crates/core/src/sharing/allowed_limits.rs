//! What administrators allow limits to be in a namespace: its `LimitRange`s, and ceilings on the namespace itself.
//!
//! Kubernetes holds the limits that it stores to `LimitRange`s; those of sharing pods stand in annotations, and are held to
//! the same rules here. Which objects there are in a cluster is not known in this room.

use super::dimension::Dimension;
use super::pod::{PodShare, annotated_limit};
use super::policy::Policy;
use super::refusal::Refusal;
use crate::one_line::one_line;
use crate::quantity::Quantity;
use crate::share::Share;

/// All that is said about limits in one namespace.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct AllowedLimits {
    /// The namespace.
    pub namespace: String,
    /// Of its `LimitRange`s.
    pub ranges: Vec<RangeRule>,
    /// On the namespace itself.
    pub ceilings: Vec<Ceiling>,
}

/// What one item of a `LimitRange` says about one percentage. For containers and for pods it is the same: one container of
/// a pod shares.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RangeRule {
    /// The name of the `LimitRange`.
    pub name: String,
    /// What it is about.
    pub dimension: Dimension,
    /// The least that a limit may be, in percent of a card.
    pub min: Option<Quantity>,
    /// The most that it may be, in percent of a card.
    pub max: Option<Quantity>,
    /// How many times the request it may be at most.
    pub ratio: Option<Quantity>,
}

/// An annotation of a namespace with the highest limit there.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Ceiling {
    /// The annotation's name.
    pub annotation: String,
    /// Its text, as somebody wrote it.
    pub text: String,
    /// What it is about.
    pub dimension: Dimension,
    /// For pods of this policy only; nothing: for all.
    pub policy: Option<Policy>,
}

impl Ceiling {
    /// The ceilings of a namespace; `annotation` gives a text by its name.
    pub fn read(annotation: impl Fn(&str) -> Option<String>) -> Vec<Self> {
        let policies = [None, Some(Policy::SharePool), Some(Policy::Static)];
        let read = |dimension: Dimension, policy: Option<Policy>| {
            let name = match policy {
                None => dimension.ceiling_annotation().to_owned(),
                Some(policy) => format!("{}.{policy}", dimension.ceiling_annotation()),
            };
            Some(Self { text: annotation(&name)?, annotation: name, dimension, policy })
        };
        let read = &read;
        let of = |dimension| policies.into_iter().filter_map(move |policy| read(dimension, policy));
        Dimension::ALL.into_iter().flat_map(of).collect()
    }

    fn check(&self, namespace: &str, share: Share) -> Result<(), Refusal> {
        let namespace = namespace.to_owned();
        let annotation = self.annotation.clone();
        let Some(most) = annotated_limit(&self.text) else {
            return Err(Refusal::CeilingUnreadable {
                namespace,
                annotation,
                value: one_line(&self.text, 40),
            });
        };
        let limit = share.limit();
        if limit > most {
            return Err(Refusal::OverCeiling {
                dimension: self.dimension,
                limit,
                most,
                namespace,
                annotation,
            });
        }
        Ok(())
    }
}

impl RangeRule {
    fn check(&self, share: Share) -> Result<(), Refusal> {
        let limit = Quantity::whole_units(share.limit().get().into());
        let request = u32::from(share.request().get());
        let bound = if let Some(max) = self.max.filter(|max| limit > *max) {
            format!("at most {max}")
        } else if let Some(min) = self.min.filter(|min| limit < *min) {
            format!("at least {min}")
        } else if let Some(ratio) = self.ratio.filter(|ratio| limit > ratio.times(request)) {
            format!("at most {ratio} times the request, which is {request}")
        } else {
            return Ok(());
        };
        Err(Refusal::OutOfRange {
            dimension: self.dimension,
            limit: share.limit(),
            range: self.name.clone(),
            bound,
        })
    }
}

impl AllowedLimits {
    /// Whether a pod of this namespace may have these limits.
    pub fn check(&self, asked: &PodShare) -> Result<(), Refusal> {
        for (dimension, share) in [(Dimension::Core, asked.core), (Dimension::Memory, asked.memory)] {
            let applies = |ceiling: &&Ceiling| {
                ceiling.dimension == dimension && ceiling.policy.is_none_or(|policy| policy == asked.policy)
            };
            for ceiling in self.ceilings.iter().filter(applies) {
                ceiling.check(&self.namespace, share)?;
            }
            for range in self.ranges.iter().filter(|range| range.dimension == dimension) {
                range.check(share)?;
            }
        }
        Ok(())
    }
}

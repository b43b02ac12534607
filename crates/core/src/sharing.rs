//! Sharing on Kubernetes, decided: what a node's label and annotation say, what a pod asks for, and what follows.
//!
//! Pure. Texts of labels, annotations and quantities come in, decisions and refusals go out; a refusal is a value
//! whose text the user reads. This room knows the published names ([`names`]) but no Kubernetes object: whoever has
//! one takes the few texts out of it that matter. Who runs on which card when is the affair of [`crate::pool`].

pub mod admission;
pub mod allowed_limits;
pub mod cards;
pub mod condition;
pub mod decision;
pub mod dimension;
pub mod names;
pub mod pod;
pub mod policy;
pub mod qos;
pub mod refusal;
pub mod reservation;

pub use admission::{Admitted, Rewrite, Update};
pub use allowed_limits::{AllowedLimits, Ceiling, RangeRule};
pub use cards::PoolCard;
pub use condition::Condition;
pub use decision::{InForce, Load, NodeRefusal, SharingDecision, SharingNode};
pub use dimension::Dimension;
pub use pod::{Amount, Container, Pod, PodShare};
pub use policy::{Policy, PolicyError};
pub use qos::{Qos, QosError};
pub use refusal::Refusal;
pub use reservation::{Amounts, Reserved};

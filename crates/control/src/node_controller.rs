//! The node controller: keeps what nodes are for, what they say and what they advertise in step.
//!
//! Decisions are pure: `plan` and what it calls make the next write from a node as observed and the cluster's settings.
//! `index` holds the nodes and says when which of them is due; `controller` and `writer` are the thin rest that talks to
//! the API server. Questions of policy are answered in `gpupool_core`; this room must know no rule about names or uses.
//!
//! ```text
//!   watch of nodes ──► ObservedNode ────► Index ──► plan ──► NodeWrite ──► API server
//!   watch of pods ───► loads ──────────────┘ ▲                                 │
//!   settings ──────────────────────────────┘ └──── WriteResult, node as is ◄───┘
//! ```

mod controller;

mod writer;

pub mod index;
pub mod patch;

pub mod plan;

mod share_policy;
mod use_condition;

mod node_write;

mod advertisement;
mod deploy_labels;
pub mod finding;
mod pod_loads;

pub mod observed;

mod cards_annotation;
mod resource_amounts;

pub use advertisement::{Advertisement, AdvertisementStage};
pub(crate) use controller::NodeController;
pub use deploy_labels::LabelChanges;
pub use node_write::{NodeWrite, SharingStatusChange, UseStatus};
pub(crate) use pod_loads::PodLoads;
pub use resource_amounts::ResourceAmounts;

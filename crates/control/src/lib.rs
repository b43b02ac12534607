//! One per cluster: keeps what nodes are for, what they say and what they advertise in step.
//!
//! Decisions are pure and live in `plan` and what it calls: a node as seen, the cluster's settings, the next write.
//! `index` holds the nodes and says when which of them is due; `controller` is the thin rest that talks to the API
//! server. Questions of policy are answered in `gpupool_core`; this crate must know no rule about names or uses.
//!
//! ```text
//!   watch of nodes ──► observed::Node ──► Index ──► plan ──► Write ──► API server
//!   watch of ClusterPolicies ──► Cluster ──┘  ▲                            │
//!                                             └──── outcome, node as is ◄──┘
//! ```

pub mod admission;
mod advert;
pub mod cards;
mod connect;
mod controller;
mod deploy_labels;
mod dry_run;
mod election;
pub mod extender;
pub mod finding;
pub mod index;
mod judgement;
mod leader_label;
mod lease;
mod listing;
mod metrics;
pub mod observed;
pub mod ownership;
pub mod patch;
pub mod plan;
mod policy;
mod policy_watch;
mod serving;
pub mod share_policy;
mod writer;

pub use advert::{Advert, Amounts, Stage};
pub use connect::{Access, ConnectError};
pub use controller::{Config, run};
pub use deploy_labels::LabelChanges;
pub use dry_run::{DryRunError, dry_run};
pub use leader_label::LEADER_LABEL;
pub use listing::{ListError, Listed, list};
pub use metrics::MetricsPage;
pub use serving::{Lifetimes, Serving, Settings as ServingSettings};

//! One per cluster: keeps what nodes are for, what they say and what they advertise in step, and answers the API server
//! and the scheduler about pods that share cards.
//!
//! Questions of policy are answered in `gpupool_core`; this crate translates Kubernetes objects into facts and decisions
//! into patches and answers. It must know no rule about names, uses or shares.

mod dry_run;
mod run;

pub mod admission;
pub mod extender;
pub mod node_controller;
mod serving;

mod cluster_policy;
mod health;
mod leader_election;
mod metrics;
mod namespace_rules;

mod http_server;

mod api_server;
mod partial_object;
mod settings;

pub use api_server::{ApiServerAccess, ConnectError, FIELD_MANAGER, ListError, ListedKind, list};
pub use dry_run::{DryRunError, dry_run};
pub use health::HealthPage;
pub use leader_election::LEADER_LABEL;
pub use metrics::MetricsPage;
pub use namespace_rules::NamespaceRules;
pub use run::{ControlConfig, run};
pub use serving::{
    CertificateLifetimes, ExtenderPort, SCHEDULER_NAME, Serving, ServingSettings, TrustedClients,
};
pub use settings::{ClusterSettings, SettingsSource};

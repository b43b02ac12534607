//! A module per subcommand: its options, what it asks others to do, and what it prints. None knows another.
//!
//! What talks to a cluster is there with the feature `kubernetes` only.

pub(crate) mod agent;
pub(crate) mod check_config;
#[cfg(feature = "kubernetes")]
pub(crate) mod control;
pub(crate) mod demo;
pub(crate) mod explain;
pub(crate) mod inventory;
pub(crate) mod names;
pub(crate) mod operands;
pub(crate) mod probe_agent;
pub(crate) mod probe_cards;
pub(crate) mod run;
pub(crate) mod status;
pub(crate) mod stop;

//! A module per subcommand: its options, what it asks others to do, and what it prints. None knows another.

pub(crate) mod agent;
pub(crate) mod check_config;
pub(crate) mod control;
pub(crate) mod demo;
pub(crate) mod explain;
pub(crate) mod inventory;
pub(crate) mod names;
pub(crate) mod operands;
pub(crate) mod probe_cards;
pub(crate) mod run;
pub(crate) mod status;
pub(crate) mod stop;

//! The settings that decide what nodes are for: of the command line, or of GPU Operator's `ClusterPolicy`.

use gpupool_core::checker::Rules;
use gpupool_core::node_use::operands::Mode;

/// What of the cluster every decision about a node depends on.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ClusterSettings {
    /// Whether sandbox workloads are enabled.
    pub enabled: bool,
    /// What unlabelled nodes are for; `container` where nothing is set.
    pub default_workload: Option<String>,
    /// Which runtime the virtual machines use.
    pub mode: Mode,
    /// Where these come from.
    pub source: SettingsSource,
    /// Which rules decide whether a node is right.
    pub rules: Rules,
    /// Whether deploy labels are written. Never where GPU Operator runs: there they are its own.
    pub manage_operands: bool,
    /// Whether nodes that share keep all of their cpu, memory and ephemeral storage for pods.
    pub no_reservation: bool,
}

/// Where the flag is read from, so that people are told what to change.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum SettingsSource {
    /// The command line of `gpupool control`.
    #[default]
    CommandLine,
    /// The `ClusterPolicy` of this name.
    ClusterPolicy(String),
}

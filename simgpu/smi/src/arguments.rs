//! The command line.

use clap::Parser;

/// Shows the NVIDIA cards of this machine, through NVML.
#[derive(Debug, Parser)]
#[command(name = "nvidia-smi", version, disable_version_flag = true)]
#[command(after_help = "This is the simulated GPU's own nvidia-smi, not NVIDIA's.\n\
    Exit codes: 0 done, 2 wrong usage, 6 no such card, 9 no driver, 12 no NVML library, 15 a card is lost.")]
pub(crate) struct Arguments {
    /// Lists the cards, one a line
    #[arg(short = 'L', long = "list-gpus", conflicts_with_all = ["query_gpu", "query_compute_apps"])]
    pub list: bool,

    /// Only this card: its index, UUID or PCI address; several separated by commas
    #[arg(short = 'i', long = "id", value_name = "CARD", value_delimiter = ',')]
    pub id: Vec<String>,

    /// Prints these fields of every card, as CSV; see --help-query-gpu
    #[arg(long, value_name = "FIELDS", value_delimiter = ',', conflicts_with = "query_compute_apps")]
    pub query_gpu: Vec<String>,

    /// Prints these fields of every process that computes, as CSV; see --help-query-compute-apps
    #[arg(long, value_name = "FIELDS", value_delimiter = ',')]
    pub query_compute_apps: Vec<String>,

    /// How a query is printed: csv, with or without noheader and nounits
    #[arg(long, value_name = "FORMAT", value_delimiter = ',')]
    pub format: Vec<String>,

    /// Lists the fields of --query-gpu
    #[arg(long)]
    pub help_query_gpu: bool,

    /// Lists the fields of --query-compute-apps
    #[arg(long)]
    pub help_query_compute_apps: bool,

    /// Takes a simulated card off the bus, as far as any program can tell
    #[arg(long, value_name = "INDEX", conflicts_with = "simulate_recovered")]
    pub simulate_lost: Option<usize>,

    /// Puts a lost simulated card back, empty
    #[arg(long, value_name = "INDEX")]
    pub simulate_recovered: Option<usize>,
}

//! `gpupool agent`: serves this machine's cards, in the foreground, until it is told to end.

#[cfg(feature = "kubernetes")]
mod cluster;
mod log_lines;

use std::mem::ManuallyDrop;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::Context as _;
use clap::ValueEnum;
use gpupool_agent::admin_api::SimulatedDriver;
use gpupool_agent::cards::Source;
use gpupool_agent::socket_path::Surroundings;
use gpupool_agent::{LogHooks, PassedDescriptors, Settings, UnservedPrograms, serve};
use gpupool_core::pool::{Millis, Policy, Qos};

use crate::agent_socket::SOCKET_HELP;
use crate::installation::Installation;
use crate::log_writer;
use crate::option_values::{parse_address, parse_minutes, parse_seconds};

/// The simulated driver's variables: where the cards' state is, and which cards it has when it is made.
const STATE: &str = "SIMGPU_STATE";
const CARDS: &str = "SIMGPU_CARDS";

/// What `--help` says about `--state-dir`.
const STATE_DIR_HELP: &str = if cfg!(feature = "kubernetes") {
    "Directory of the journal and of simulated cards [default: that of the socket; with --kubernetes \"state\" in the \
     directory of --install-dir]"
} else {
    "Directory of the journal and of simulated cards [default: that of the socket]"
};

/// What `--help` says about `--node-name`.
const NODE_NAME_HELP: &str = if cfg!(feature = "kubernetes") {
    "This machine's name in the metrics [default: the host's name]; with --kubernetes its node's"
} else {
    "This machine's name in the metrics [default: the host's name]"
};

/// Options of `gpupool agent`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(long, value_name = "PATH", help = SOCKET_HELP)]
    socket: Option<PathBuf>,
    #[arg(long, value_name = "DIRECTORY", help = STATE_DIR_HELP)]
    state_dir: Option<PathBuf>,
    /// The journal [default: in the state directory, named after the socket]
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,
    /// Simulated cards instead of real ones: how many, or which, such as 2xA100-80GB,1xT4
    #[arg(long, value_name = "CARDS")]
    simulated_cards: Option<String>,
    #[command(flatten)]
    metrics: MetricsArgs,
    /// How programs share the cards
    #[arg(long, value_enum, default_value_t = PolicyOption::SharePool)]
    policy: PolicyOption,
    /// How long a program holds a card undisturbed while others wait: minutes, or with a unit such as 90s or 2h
    #[arg(long, value_name = "TIME", default_value = "120", value_parser = parse_minutes)]
    pod_max_duration: Duration,
    /// Whether a program that has held its card that long makes room for one that waits
    #[arg(long, value_name = "true|false", default_value_t = true, action = clap::ArgAction::Set)]
    preempt: bool,
    /// Time between SIGTERM and SIGKILL: seconds, or with a unit
    #[arg(long, value_name = "TIME", default_value = "30", value_parser = parse_seconds)]
    grace: Duration,
    /// After how long an idle program makes room for one that waits: seconds, or with a unit [default: never]
    #[arg(long, value_name = "TIME", value_parser = parse_seconds)]
    idle_release: Option<Duration>,
    /// Let programs use what nobody else uses of a card, beyond their core limits; a program alone on a card has all of it
    #[arg(long)]
    work_conserving: bool,
    #[arg(long, value_name = "NAME", help = NODE_NAME_HELP)]
    node_name: Option<String>,
    /// End the GPU processes of a pod that lastingly takes more device memory than its limit, by what NVML shows;
    /// without this it is reported, and nobody else is granted its card
    #[arg(long)]
    evict_unaccounted: bool,
    /// What becomes of programs whose library is of a release that this agent does not understand
    #[arg(long, value_enum, default_value_t = UnservedOption::HeldBack)]
    unserved_programs: UnservedOption,
    #[command(flatten)]
    socket_tests: SocketTestArgs,
    #[cfg(feature = "kubernetes")]
    #[command(flatten)]
    cluster: cluster::Args,
}

/// What the agent measures for others.
#[derive(Debug, clap::Args)]
#[group(skip)]
struct MetricsArgs {
    /// Serve Prometheus metrics on this port or address [default: not served; host 127.0.0.1]
    #[arg(long, value_name = "[HOST:]PORT", value_parser = parse_address)]
    metrics_address: Option<SocketAddr>,
    /// Leave out what each pod uses of its card: for machines where NVIDIA's exporter says it
    #[arg(long)]
    no_device_metrics: bool,
}

/// What tests ask of the socket.
#[derive(Debug, clap::Args)]
#[group(skip)]
struct SocketTestArgs {
    /// Lets descriptors arrive on the socket, as kernels before Linux 6.16 do
    #[arg(long, hide = true)]
    descriptors_arrive: bool,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum UnservedOption {
    /// They get no card
    HeldBack,
    /// They run without a lease and without limits, and are reported
    Unheld,
}

/// `--policy`.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum PolicyOption {
    /// One queue; a program gets whichever card has room
    SharePool,
    /// One queue for each card; a program's card is settled when it starts
    Static,
}

/// Serves until SIGTERM or SIGINT.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    log_lines::begin().context("cannot start the log's thread")?;
    let surroundings = Surroundings::of_this_process(args.socket.clone());
    let socket = std::path::absolute(surroundings.socket()?)?;
    surroundings.prepare_directory(&socket)?;
    let state = args.state_directory(&socket)?;
    std::fs::create_dir_all(&state)
        .with_context(|| format!("cannot make the state directory {}", state.display()))?;
    let simulated = match &args.simulated_cards {
        Some(cards) => Some(simulated_driver(&state, cards)?),
        None => None,
    };
    let settings = Settings {
        #[cfg(feature = "kubernetes")]
        kubernetes: args.cluster.settings(millis(args.grace), args.idle_release.map(millis))?,
        surroundings: Surroundings { option: Some(socket.clone()), ..surroundings },
        journal: args.journal.clone().unwrap_or_else(|| journal_of(&state, &socket)),
        source: Source { simulated, prober: std::env::current_exe()? },
        expected_cards: args.simulated_cards.as_ref().and_then(|cards| cards.parse().ok()),
        policy: match args.policy {
            PolicyOption::SharePool => Policy::SharePool,
            PolicyOption::Static => Policy::Static,
        },
        qos: Qos {
            preempt_enabled: args.preempt,
            pod_max_duration: millis(args.pod_max_duration),
            grace: millis(args.grace),
            idle_release: args.idle_release.map(millis),
        },
        work_conserving: args.work_conserving,
        metrics: args.metrics.metrics_address,
        device_metrics: !args.metrics.no_device_metrics,
        node: args.node_name.unwrap_or_else(host_name),
        descriptors: if args.socket_tests.descriptors_arrive {
            PassedDescriptors::MayArrive
        } else {
            PassedDescriptors::Refused
        },
        evict_unaccounted: args.evict_unaccounted,
        unserved: match args.unserved_programs {
            UnservedOption::HeldBack => UnservedPrograms::HeldBack,
            UnservedOption::Unheld => UnservedPrograms::Unheld,
        },
        log: LogHooks { lines_lost: log_writer::lines_lost, drain: log_writer::drain },
    };
    // What is open at the end is closed by the kernel with the process, which waits for no stranger's descriptors.
    let runtime = ManuallyDrop::new(tokio::runtime::Builder::new_current_thread().enable_all().build()?);
    runtime.block_on(serve(settings))?;
    Ok(ExitCode::SUCCESS)
}

impl Args {
    /// Where the journal and the simulated cards are.
    fn state_directory(&self, socket: &Path) -> std::io::Result<PathBuf> {
        if let Some(directory) = &self.state_dir {
            return std::path::absolute(directory);
        }
        #[cfg(feature = "kubernetes")]
        if let Some(directory) = self.cluster.state_directory() {
            return Ok(directory);
        }
        Ok(socket.parent().map_or_else(|| PathBuf::from("/"), Path::to_owned))
    }
}

/// The simulated driver reads its variables when it is loaded. So that this process and its children have them, it
/// starts itself again with them, once.
fn simulated_driver(state: &Path, cards: &str) -> anyhow::Result<SimulatedDriver> {
    let directory = Installation::find()?.simulated_driver()?;
    let state = state.join("simgpu.state");
    let set =
        |name: &str, value: &std::ffi::OsStr| std::env::var_os(name).is_some_and(|found| found == value);
    if !set(STATE, state.as_os_str()) || !set(CARDS, cards.as_ref()) {
        let mut again = Command::new(std::env::current_exe()?);
        again.args(std::env::args_os().skip(1)).env(STATE, &state).env(CARDS, cards);
        return Err(again.exec()).context("cannot start again with simulated cards");
    }
    Ok(SimulatedDriver { directory, state })
}

fn journal_of(state: &Path, socket: &Path) -> PathBuf {
    let mut name = socket.file_stem().unwrap_or_default().to_owned();
    name.push(".journal");
    state.join(name)
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn millis(duration: Duration) -> Millis {
    Millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

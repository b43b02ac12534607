//! `gpupool control`: the node controller, in the foreground, until it is told to end.

use std::io::{self, IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::ValueEnum;
use gpupool_control::{
    ClusterSettings, ControlConfig, HealthPage, MetricsPage, SCHEDULER_NAME, Serving, SettingsSource,
    TrustedClients, dry_run,
};
use gpupool_core::node_use::NodeUse;
use gpupool_core::node_use::operands::Mode;
use gpupool_core::sharing::names::CONTROL;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::cluster_access::ClusterArgs;
use crate::log_writer;
use crate::option_values::{RulesOption, parse_address};

/// Options of `gpupool control`.
#[derive(Debug, clap::Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
pub(crate) struct Args {
    /// Read the label nvidia.com/gpu.workload.config of nodes. Where there is a `ClusterPolicy`, it decides instead
    #[arg(long)]
    sandbox_workloads: bool,
    /// What nodes without the label are for. Where there is a `ClusterPolicy`, it decides instead
    #[arg(long, value_name = "USE", default_value = "container", value_parser = parse_use)]
    default_workload: NodeUse,
    /// Which runtime virtual machines use, for --manage-operands. Where there is a `ClusterPolicy`, it decides instead
    #[arg(long, value_enum, default_value_t = SandboxModeOption::Kubevirt)]
    sandbox_mode: SandboxModeOption,
    /// How strictly nodes are judged
    #[arg(long, value_enum, default_value_t)]
    rules: RulesOption,
    /// Write the nvidia.com/gpu.deploy.* labels, unless GPU Operator is installed, which writes them itself
    #[arg(long)]
    manage_operands: bool,
    /// Leave all cpu, memory and ephemeral storage of nodes that share cards to pods
    #[arg(long)]
    no_reservation: bool,
    /// Print what would be written now, one JSON object a line, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// The namespace of the Lease by which controllers agree who writes [default: the kubeconfig's or the pod's]
    #[arg(long, value_name = "NAMESPACE")]
    lease_namespace: Option<String>,
    /// The name of that Lease
    #[arg(long, value_name = "NAME", default_value = "gpupool-control")]
    lease_name: String,
    /// Serve Prometheus metrics on this port or address [default: not served; host 127.0.0.1]
    #[arg(long, value_name = "[HOST:]PORT", value_parser = parse_address)]
    metrics_address: Option<SocketAddr>,
    /// Say on this port or address whether the process lives (/healthz) and is ready (/ready) [default: not served; host
    /// 127.0.0.1]
    #[arg(long, value_name = "[HOST:]PORT", value_parser = parse_address)]
    health_address: Option<SocketAddr>,
    #[command(flatten)]
    serving: ServingArgs,
    /// The pod that this process runs in, to be labelled gpupool.io/leader=true while it leads
    #[arg(long, value_name = "NAME")]
    pod_name: Option<String>,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// What is served over HTTPS, where and to whom.
#[derive(Debug, clap::Args)]
struct ServingArgs {
    /// Serve admission webhooks over HTTPS on this address [default: not served]
    #[arg(long, value_name = "HOST:PORT")]
    serve: Option<SocketAddr>,
    /// Serve admission to API servers only whose certificate is of an authority in this PEM file [default: to whoever
    /// reaches it]
    #[arg(long, value_name = "FILE", requires = "serve")]
    serve_client_ca: Option<PathBuf>,
    /// The DNS name that API servers' certificates must be for [default: any]
    #[arg(long, value_name = "NAME", requires = "serve_client_ca")]
    serve_client_name: Option<String>,
    /// Serve the scheduler extender over HTTPS on this address, too, to schedulers with a certificate [default: not
    /// served]. One is made, in the Secret SERVICE-scheduler
    #[arg(long, value_name = "HOST:PORT", requires = "serve")]
    extender: Option<SocketAddr>,
    /// Serve the extender to schedulers instead whose certificate is of an authority in this PEM file
    #[arg(long, value_name = "FILE", requires = "extender")]
    extender_client_ca: Option<PathBuf>,
    /// The DNS name that the certificates of those schedulers must be for
    #[arg(long, value_name = "NAME", requires = "extender_client_ca", default_value = SCHEDULER_NAME)]
    extender_client_name: String,
    /// The Service by which the API server reaches --serve; the Secret SERVICE-certificate holds the certificate, and
    /// webhook configurations of that name are told to trust it
    #[arg(long, value_name = "SERVICE", default_value = CONTROL)]
    service: String,
    /// Another name or address by which --serve is reached. Can be given several times
    #[arg(long, value_name = "NAME")]
    serve_name: Vec<String>,
}

/// `--sandbox-mode`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum SandboxModeOption {
    /// `KubeVirt`
    Kubevirt,
    /// Kata containers
    Kata,
}

/// Runs until SIGTERM or SIGINT.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = args.cluster.access().connect().await?;
        if args.dry_run {
            let mut out = io::stdout();
            dry_run(&client, &args.settings(), &mut out).await?;
            out.flush()?;
            return Ok(ExitCode::SUCCESS);
        }
        log_to_stderr().context("cannot start the log's thread")?;
        let metrics = match args.metrics_address {
            Some(address) => {
                let page = MetricsPage::open(address).await;
                Some(page.with_context(|| format!("cannot serve metrics on {address}"))?)
            }
            None => None,
        };
        let health = match args.health_address {
            Some(address) => {
                let page = HealthPage::open(address).await;
                Some(page.with_context(|| format!("cannot serve the process's health on {address}"))?)
            }
            None => None,
        };
        let namespace = args.lease_namespace.as_deref().unwrap_or_else(|| client.default_namespace());
        let settings = args.settings();
        let serving = args.serving.open(namespace)?;
        let config = ControlConfig {
            settings,
            identity: identity(),
            lease_namespace: args.lease_namespace,
            lease_name: args.lease_name,
            metrics,
            health,
            pod: args.pod_name,
            serving,
            log_lines_lost: log_writer::lines_lost,
        };
        gpupool_control::run(client, config, shutdown_requested()?).await;
        Ok(ExitCode::SUCCESS)
    })
}

impl Args {
    fn settings(&self) -> ClusterSettings {
        ClusterSettings {
            enabled: self.sandbox_workloads,
            default_workload: Some(self.default_workload.value().to_owned()),
            mode: match self.sandbox_mode {
                SandboxModeOption::Kubevirt => Mode::Kubevirt,
                SandboxModeOption::Kata => Mode::Kata,
            },
            source: SettingsSource::CommandLine,
            rules: self.rules.into(),
            manage_operands: self.manage_operands,
            no_reservation: self.no_reservation,
        }
    }
}

impl ServingArgs {
    fn open(self, namespace: &str) -> anyhow::Result<Option<Serving>> {
        let Some(address) = self.serve else { return Ok(None) };
        let serving = Serving::open(address, &self.service, namespace, &self.serve_name);
        let mut serving = serving.with_context(|| format!("cannot serve on {address}"))?;
        let name = self.serve_client_name;
        serving.admission_clients =
            self.serve_client_ca.map(|authorities| TrustedClients { authorities, name });
        if let Some(address) = self.extender {
            let name = Some(self.extender_client_name);
            let clients = self.extender_client_ca.map(|authorities| TrustedClients { authorities, name });
            let opened = serving.open_extender(address, clients);
            opened.with_context(|| format!("cannot serve the extender on {address}"))?;
        }
        Ok(Some(serving))
    }
}

fn parse_use(text: &str) -> Result<NodeUse, String> {
    text.parse().map_err(|error: gpupool_core::node_use::UnknownUse| error.to_string())
}

/// Host and process: in a cluster the host is the pod, and a container that was restarted is the same candidate.
fn identity() -> String {
    let uname = rustix::system::uname();
    format!("{}_{}", uname.nodename().to_string_lossy(), std::process::id())
}

/// A value that becomes true when the process is asked to end.
fn shutdown_requested() -> io::Result<watch::Receiver<bool>> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let (sender, receiver) = watch::channel(false);
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        // Whoever was listening has ended by itself.
        let _ = sender.send(true);
    });
    Ok(receiver)
}

/// Log lines on standard error: what was written to which node and why, and what went wrong.
fn log_to_stderr() -> io::Result<()> {
    let writer = log_writer::begin("gpupool control")?;
    let log = tracing_subscriber::fmt().with_writer(writer).with_ansi(io::stderr().is_terminal());
    log.with_target(false).with_max_level(tracing::Level::INFO).init();
    Ok(())
}

//! `cargo xtask cluster up|down|status|env`: one real Kubernetes per user, left running until it is taken down.
//!
//! `up` leaves a process behind, the keeper, that holds the cluster: the cluster lives exactly as long as it does.
//! Whether it lives is told by the lock on the cluster's folder, never by a file with a number in it.

#![allow(clippy::print_stdout, reason = "the export line and the table are this task's output")]

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::Context;
use gpupool_testbed::{
    Cluster, ClusterDescription, Health, KubeletNode, KwokNode, Product, Tool, cache, folder_of, holder,
};

use crate::{setup, step};

/// What the keeper says once the cluster is ready; anything else is why there is none.
const READY: &str = "ready\n";

/// What to do with the cluster.
#[derive(Clone, Debug, clap::Subcommand)]
pub(crate) enum Action {
    /// Starts a cluster in the background and prints the KUBECONFIG to export.
    Up(Shape),
    /// Ends the cluster and removes everything that belonged to it.
    Down,
    /// Says which components run, where, and how they are doing.
    Status,
    /// Prints the KUBECONFIG to export.
    Env,
    /// Holds the cluster; `up` starts it.
    #[command(hide = true)]
    Keep {
        #[command(flatten)]
        shape: Shape,
        /// The checkout, and what `cargo xtask dist` laid out, where the nodes have cards.
        #[arg(long, num_args = 2, value_names = ["SOURCE", "DIST"])]
        product: Vec<PathBuf>,
    },
}

/// What the cluster is to be like.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Shape {
    /// How many nodes it has.
    #[arg(long, default_value_t = 1)]
    nodes: u32,
    /// Simulated cards of each node: how many, or which, such as 2xA100-80GB,1xT4. The nodes then have a real kubelet
    /// and containerd, and gpupool is installed; needs root [default: none, and kwok plays the nodes]
    #[arg(long, value_name = "CARDS")]
    cards: Option<String>,
}

/// Does it; the exit code says whether there is a healthy cluster, or none any more after `down`.
///
/// That there is no cluster, or one too many, is a state and no fault of this program: it is one sentence on
/// standard error and an exit code. Errors are for what should not have happened.
pub(crate) fn run(action: Action) -> anyhow::Result<ExitCode> {
    let folder = cache()?.join("people");
    match action {
        Action::Up(shape) => up(&folder, &shape),
        Action::Down => down(&folder),
        Action::Status => status(&folder),
        Action::Env => env(&folder),
        Action::Keep { shape, product } => keep(&folder, &shape, &product),
    }
}

/// What is found in the folder.
enum ClusterState {
    Nothing,
    /// Files of a cluster whose keeper has died.
    Remains,
    /// A keeper that has not got its cluster ready yet.
    Starting(u32, Option<ClusterDescription>),
    Running(u32, ClusterDescription),
}

impl ClusterState {
    fn look(folder: &Path) -> anyhow::Result<Self> {
        let Some(keeper) = holder(folder)? else {
            return Ok(if folder.exists() { Self::Remains } else { Self::Nothing });
        };
        Ok(match ClusterDescription::read(folder)? {
            Some(description) if description.ready => Self::Running(keeper, description),
            unready => Self::Starting(keeper, unready),
        })
    }

    /// One sentence on why there is no running cluster.
    fn why_not(&self) -> String {
        match self {
            Self::Nothing => "no cluster is up; start one with `cargo xtask cluster up`".to_owned(),
            Self::Remains => "the cluster's process has died; `cargo xtask cluster up` starts a new one, \
                              `cargo xtask cluster down` removes what is left"
                .to_owned(),
            Self::Starting(keeper, _) => format!(
                "process {keeper} is just starting a cluster; try again when it is done, or end it with \
                 `cargo xtask cluster down`"
            ),
            Self::Running(keeper, _) => format!("a cluster is up, held by process {keeper}"),
        }
    }
}

fn up(folder: &Path, shape: &Shape) -> anyhow::Result<ExitCode> {
    if shape.cards.is_some() && !rustix::process::geteuid().is_root() {
        return Ok(refuse(
            "nodes with cards have a real kubelet, which needs root: try again as root, or without --cards",
        ));
    }
    match ClusterState::look(folder)? {
        ClusterState::Running(keeper, description) => {
            eprintln!("a cluster is up already, held by process {keeper}");
            announce(&description);
            return Ok(ExitCode::SUCCESS);
        }
        found @ ClusterState::Starting(..) => return Ok(refuse(&found.why_not())),
        ClusterState::Remains => eprintln!("the last cluster's process has died; removing what it left"),
        ClusterState::Nothing => (),
    }
    // Here rather than in the keeper, so that whoever waits for minutes sees why.
    folder_of(Tool::Kube)?;
    folder_of(Tool::Kwok)?;
    let mut keeper = Command::new("/proc/self/exe");
    keeper.args(["cluster", "keep", "--nodes", &shape.nodes.to_string()]);
    if let Some(cards) = &shape.cards {
        setup::provide(setup::NODES)?;
        for tool in [Tool::Init, Tool::Containerd, Tool::Helm] {
            folder_of(tool)?;
        }
        keeper.args(["--cards", cards, "--product"]).arg(step::root()).arg(gpupool_dist::given_or_built()?);
        eprintln!(
            "starting a control plane and {} nodes, and installing gpupool (about a minute)",
            shape.nodes
        );
    } else {
        eprintln!("starting etcd, API server, scheduler, controller-manager and kwok (about 10 seconds)");
    }
    let mut keeper = keeper
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // Not the caller's: a pipe behind it would stay open as long as the cluster lives.
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start the process that holds the cluster")?;
    let mut said = String::new();
    let mut answer = keeper.stdout.take().context("the keeper has a standard output")?;
    while said != READY {
        let mut part = [0; 256];
        let length = answer.read(&mut part).context("cannot hear from the process that holds the cluster")?;
        if length == 0 {
            return Ok(refuse(&format!("the cluster did not start: {}", said.trim_end())));
        }
        said.push_str(&String::from_utf8_lossy(&part[..length]));
    }
    let description =
        ClusterDescription::read(folder)?.context("the cluster ended as soon as it was ready")?;
    announce(&description);
    Ok(ExitCode::SUCCESS)
}

/// Starts the cluster and holds it until this process is ended; the kernel ends the components with it.
fn keep(folder: &Path, shape: &Shape, product: &[PathBuf]) -> anyhow::Result<ExitCode> {
    // The terminal that `up` was typed in may be closed.
    rustix::process::setsid().context("cannot leave the terminal")?;
    let _cluster = match start(folder, shape, product) {
        Ok(cluster) => cluster,
        Err(error) => {
            println!("{error}");
            return Ok(ExitCode::FAILURE);
        }
    };
    print!("{READY}");
    loop {
        std::thread::park();
    }
}

fn start(folder: &Path, shape: &Shape, product: &[PathBuf]) -> Result<Cluster, gpupool_testbed::Error> {
    let names = (1..=shape.nodes).map(|number| format!("node-{number}"));
    let (Some(cards), [source, dist]) = (&shape.cards, product) else {
        return Cluster::builder().folder(folder).nodes(names.map(KwokNode::new)).start();
    };
    let product = Product::new(source, dist);
    let mut builder =
        Cluster::builder().folder(folder).image(product.image()?).image(product.published_image()?);
    for name in names {
        let node = KubeletNode::new(name).label("alibabacloud.com/node-type", "reserved");
        builder = builder.kubelet_node(node.cards(product.cards(cards)));
    }
    let mut cluster = builder.start()?;
    product.install(&mut cluster, &serde_json::json!({}))?;
    Ok(cluster)
}

fn down(folder: &Path) -> anyhow::Result<ExitCode> {
    eprintln!(
        "{}",
        if ClusterDescription::end(folder)? { "the cluster is gone" } else { "no cluster was up" }
    );
    Ok(ExitCode::SUCCESS)
}

fn status(folder: &Path) -> anyhow::Result<ExitCode> {
    let found = ClusterState::look(folder)?;
    println!("{}", found.why_not());
    let (description, ready) = match found {
        ClusterState::Running(_, description) => (description, true),
        ClusterState::Starting(_, Some(description)) => (description, false),
        ClusterState::Nothing | ClusterState::Remains | ClusterState::Starting(_, None) => {
            return Ok(ExitCode::FAILURE);
        }
    };
    let health = description.health()?;
    println!("{:<24} {:>8} {:>9}  {:<9} ADDRESS", "COMPONENT", "PID", "MEMORY", "HEALTH");
    health.iter().for_each(print_row);
    for health in health.iter().filter(|health| health.trouble.is_some()) {
        println!("{}: {}", health.part.name, health.trouble.as_deref().unwrap_or_default());
    }
    println!("KUBECONFIG {}", description.kubeconfig.display());
    let healthy = ready && health.iter().all(|health| health.trouble.is_none());
    Ok(if healthy { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print_row(health: &Health) {
    let Health { part, resident_kib, trouble } = health;
    let pid = part.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
    let memory = resident_kib.map_or_else(|| "-".to_owned(), |kib| format!("{} MiB", kib / 1024));
    let word = if trouble.is_none() { "ok" } else { "trouble" };
    println!("{:<24} {pid:>8} {memory:>9}  {word:<9} {}", part.name, part.address.as_deref().unwrap_or("-"));
}

fn env(folder: &Path) -> anyhow::Result<ExitCode> {
    match ClusterState::look(folder)? {
        ClusterState::Running(_, description) => println!("{}", export(&description.kubeconfig)),
        found => return Ok(refuse(&found.why_not())),
    }
    Ok(ExitCode::SUCCESS)
}

fn refuse(sentence: &str) -> ExitCode {
    eprintln!("{sentence}");
    ExitCode::FAILURE
}

/// The export line on standard output, fit for `eval`; the rest is for people.
fn announce(description: &ClusterDescription) {
    println!("{}", export(&description.kubeconfig));
    eprintln!("kubectl of the cluster's version: {}", description.kubectl.display());
}

/// The line for a shell; quoted, as a home directory may have any name.
fn export(kubeconfig: &Path) -> String {
    let path = kubeconfig.display().to_string();
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+".contains(letter);
    if path.chars().all(plain) {
        return format!("export KUBECONFIG={path}");
    }
    format!("export KUBECONFIG='{}'", path.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn the_export_line_survives_any_home_directory() {
        assert_eq!(export(Path::new("/home/a-b/c.d")), "export KUBECONFIG=/home/a-b/c.d");
        let odd = PathBuf::from("/home/it's $HOME `x`");
        let script = format!("{}; printf %s \"$KUBECONFIG\"", export(&odd));
        let shell = Command::new("sh").args(["-c", &script]).output().unwrap();
        assert_eq!(String::from_utf8(shell.stdout).unwrap(), odd.display().to_string());
    }
}

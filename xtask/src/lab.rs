//! `cargo xtask lab`: the published lab "sandbox workloads", all eight steps, against a real control plane.
//!
//! Plain `kubectl` does what the page says, and every line of `out/` is read back from the cluster. A second pass lets
//! `gpupool control` advertise what the first one patched by hand, and must yield the same files.

mod pass;
mod scene;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use tempfile::TempDir;

use scene::Scene;

/// Files of `out/` that both passes must agree on; `nodes.json` also holds times and versions.
const COMPARED: &[&str] = &[
    "01-nodes.txt",
    "operands.txt",
    "03-resources.txt",
    "04-container.txt",
    "05-passthrough.txt",
    "06-placement.txt",
    "07-cross.txt",
    "consistency.txt",
];

/// What the page says that the files must hold, but for the scheduler's own sentence in `07-cross.txt`.
const PUBLISHED: &[(&str, &str)] = &[
    ("01-nodes.txt", "lab-node-0 container\nlab-node-1 vm-passthrough\nlab-node-2 vm-vgpu\n"),
    (
        "03-resources.txt",
        "lab-node-0 nvidia.com/gpu 4\nlab-node-1 nvidia.com/GA102GL_A10 2\nlab-node-2 nvidia.com/NVIDIA_A10-12Q 4\n",
    ),
    ("04-container.txt", "NODE=lab-node-0\n"),
    ("05-passthrough.txt", "NODE=lab-node-1\nRESOURCE=nvidia.com/GA102GL_A10\n"),
    ("06-placement.txt", "job-container lab-node-0\nvmi-passthrough lab-node-1\nvmi-vgpu lab-node-2\n"),
    ("consistency.txt", "OK=3\n"),
];

/// Where the lab runs and where its files go.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The folder that gets `out/`, `bin/` and `k8s/`.
    #[arg(long, value_name = "DIR")]
    root: PathBuf,
    /// A cluster to run against; without it one is started and ended.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Use lab-node-0, lab-node-1 and lab-node-2 even where they exist already; their labels and resources of
    /// before come back afterwards.
    #[arg(long)]
    on_existing_nodes: bool,
    /// Who advertises the nodes' resources; without it both ways are tried and compared.
    #[arg(long, value_name = "WHO")]
    advertise: Option<Advertiser>,
}

/// Who writes a node's capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Advertiser {
    /// `kubectl patch`, as on the page.
    Hand,
    /// `gpupool control`, from an annotation that names the cards.
    Control,
}

/// Runs the lab as asked and says where its files are.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let dist = gpupool_dist::given_or_built()?;
    let scene = Scene::open(&dist, options.kubeconfig.as_deref(), options.on_existing_nodes)?;
    fs::create_dir_all(&options.root).with_context(|| format!("cannot make {}", options.root.display()))?;
    let root = options.root.canonicalize()?;
    match options.advertise {
        Some(advertiser) => pass::run(&scene, &root, advertiser)?,
        None => both(&scene, &root)?,
    }
    eprintln!("==> the lab's files are in {}", root.display());
    scene.close()
}

/// As a test: both passes in a temporary folder, compared with each other and with the page.
pub(crate) fn check(dist: &Path) -> anyhow::Result<()> {
    let folder = TempDir::with_prefix("gpupool-lab-")?;
    let scene = Scene::open(dist, None, false)?;
    both(&scene, folder.path())?;
    scene.close()?;
    let out = folder.path().join("out");
    for (file, expected) in PUBLISHED {
        let found = fs::read_to_string(out.join(file))?;
        if found != *expected {
            bail!("out/{file} should be\n{expected}but is\n{found}");
        }
    }
    let cross = fs::read_to_string(out.join("07-cross.txt"))?;
    if !cross.starts_with("PHASE=Pending\nNODE=none\nMESSAGE=")
        || !cross.contains("Insufficient nvidia.com/gpu")
    {
        bail!("out/07-cross.txt does not say that nvidia.com/gpu is insufficient:\n{cross}");
    }
    Ok(())
}

/// By hand into `root`, then by the controller into a folder of its own; the files must be the same.
fn both(scene: &Scene, root: &Path) -> anyhow::Result<()> {
    pass::run(scene, root, Advertiser::Hand)?;
    let second = TempDir::with_prefix("gpupool-lab-")?;
    pass::run(scene, second.path(), Advertiser::Control)?;
    for file in COMPARED {
        let read = |root: &Path| {
            let path = root.join("out").join(file);
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        let (hand, control) = (read(root)?, read(second.path())?);
        if hand != control {
            bail!("out/{file} differs\nby hand:\n{hand}by gpupool control:\n{control}");
        }
    }
    eprintln!("==> by hand and by gpupool control: the same {} files", COMPARED.len());
    Ok(())
}

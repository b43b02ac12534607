//! `cargo xtask dist`: one folder, `target/dist`, with what is installed, demonstrated and tested.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::step;

/// Where cargo leaves a built file, below the target folder, and where it goes, below `target/dist`.
const FILES: &[(&str, &str)] = &[
    ("release/gpupool", "bin/gpupool"),
    ("preload/libgpupool_shim.so", "lib/libgpupool.so"),
    // For tests only: with points at which it stops.
    ("stops/libgpupool_shim.so", "tests/libgpupool.so"),
    ("release/libcuda.so", "simgpu/libcuda.so.1"),
    ("release/libnvidia_ml.so", "simgpu/libnvidia-ml.so.1"),
    ("release/nvidia-smi", "simgpu/nvidia-smi"),
];

/// The folder that `GPUPOOL_DIST` names, as the tests have it; where it names none, everything is built and laid out.
pub(crate) fn given_or_built() -> anyhow::Result<PathBuf> {
    std::env::var_os("GPUPOOL_DIST").map_or_else(build, |dist| Ok(std::path::absolute(dist)?))
}

/// Builds everything and lays it out; gives the folder.
pub(crate) fn build() -> anyhow::Result<PathBuf> {
    eprintln!("==> building gpupool, the shim and the simulated GPU (some minutes the first time)");
    let packages = ["gpupool", "simgpu-cuda", "simgpu-nvml", "simgpu-smi"];
    let mut arguments = vec!["build", "--release", "--locked", "--quiet"];
    arguments.extend(packages.iter().flat_map(|package| ["--package", package]));
    step::succeed(&mut step::cargo(&arguments))?;
    build_shim("--profile=preload", "--features=preload")?;
    build_shim("--profile=stops", "--features=preload,stop-points")?;

    let target = target_folder();
    let dist = target.join("dist");
    for (built, laid_out) in FILES {
        place(&target.join(built), &dist.join(laid_out))?;
    }
    link_kubectl_plugin(&dist)?;
    Ok(dist)
}

fn build_shim(profile: &str, features: &str) -> anyhow::Result<()> {
    step::succeed(&mut step::cargo(&[
        "rustc",
        profile,
        "--locked",
        "--quiet",
        "--package=gpupool-shim",
        "--lib",
        "--crate-type=cdylib",
        features,
    ]))
}

/// The name under which kubectl finds the binary as its plugin: `kubectl gpupool …`.
fn link_kubectl_plugin(dist: &Path) -> anyhow::Result<()> {
    let plugin = dist.join("bin/kubectl-gpupool");
    if plugin.symlink_metadata().is_ok() {
        return Ok(());
    }
    symlink("gpupool", &plugin).with_context(|| format!("cannot link {}", plugin.display()))
}

/// Cargo's target folder, as the caller's environment sets it.
fn target_folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| step::root().join("target"), PathBuf::from)
}

/// Copies beside the destination, then renames: a program that runs or maps the old file keeps it whole.
fn place(from: &Path, to: &Path) -> anyhow::Result<()> {
    let folder = to.parent().context("a laid-out file has a folder")?;
    fs::create_dir_all(folder)?;
    let new = to.with_extension("new");
    fs::copy(from, &new).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    fs::rename(&new, to).with_context(|| format!("cannot put {} in its place", to.display()))
}

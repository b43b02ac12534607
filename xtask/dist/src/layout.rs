//! What is built, and where it lies afterwards.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::Error;
use crate::cargo::{cargo, succeed, target_folder};

/// Where cargo leaves a built file, below the target folder, and where it goes, below the folder that is laid out.
pub(crate) type Place = (&'static str, &'static str);

const PROGRAM: Place = ("release/gpupool", "bin/gpupool");
const DEMO: &[Place] = &[
    ("quick/gpupool", "bin/gpupool"),
    SHIM,
    ("quick/libcuda.so", "simgpu/libcuda.so.1"),
    ("quick/libnvidia_ml.so", "simgpu/libnvidia-ml.so.1"),
    ("quick/nvidia-smi", "simgpu/nvidia-smi"),
];
const INSTALLED_PROGRAM: Place = ("installed/gpupool", "bin/gpupool");
const SHIM: Place = ("preload/libgpupool_shim.so", "lib/libgpupool.so");
/// For tests only: with points at which it stops.
const SHIM_WITH_STOPS: Place = ("stops/libgpupool_shim.so", "tests/libgpupool.so");
const SIMULATED: &[Place] = &[
    ("release/libcuda.so", "simgpu/libcuda.so.1"),
    ("release/libnvidia_ml.so", "simgpu/libnvidia-ml.so.1"),
    ("release/nvidia-smi", "simgpu/nvidia-smi"),
];
const SIMULATED_PACKAGES: &[&str] =
    &["--package=simgpu-cuda", "--package=simgpu-nvml", "--package=simgpu-smi"];

/// The folder that `GPUPOOL_DIST` names; where it names none, what tests need is built and laid out in `target/tests`, once
/// per process. It is what [`build`] builds, but for the time that it takes to make the program smaller still.
pub fn given_or_built() -> Result<PathBuf, Error> {
    static BUILT: Mutex<Option<PathBuf>> = Mutex::new(None);
    if let Some(dist) = std::env::var_os("GPUPOOL_DIST") {
        return std::path::absolute(&dist).map_err(Error::file("find", dist));
    }
    let mut built = BUILT.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(dist) = &*built {
        return Ok(dist.clone());
    }
    tell("==> building gpupool, the shim and the simulated GPU (some minutes the first time)");
    build_with_cargo(&["--release", "--package=gpupool"])?;
    Ok(built.insert(build_around(PROGRAM, "tests")?).clone())
}

/// Builds everything as it is installed and lays it out in `target/dist`; gives the folder.
pub fn build() -> Result<PathBuf, Error> {
    tell("==> building gpupool, the shim and the simulated GPU (some minutes)");
    build_with_cargo(&["--profile=installed", "--package=gpupool"])?;
    build_around(INSTALLED_PROGRAM, "dist")
}

/// Builds the libraries and lays them out with the program, which is built already.
fn build_around(program: Place, name: &str) -> Result<PathBuf, Error> {
    build_with_cargo(&[&["--release"], SIMULATED_PACKAGES].concat())?;
    build_shim("--profile=preload", "--features=preload")?;
    build_shim("--profile=stops", "--features=preload,stop-points")?;
    let folder = lay_out(name, &[&[program, SHIM, SHIM_WITH_STOPS], SIMULATED].concat())?;
    link_kubectl_plugin(&folder)?;
    Ok(folder)
}

/// Builds what `gpupool demo` needs and lays it out in `target/demo`: the program knows no Kubernetes, whose client is
/// most of what there is to compile.
pub fn build_for_demo() -> Result<PathBuf, Error> {
    tell("==> building gpupool, the shim and the simulated GPU (two minutes the first time)");
    build_with_cargo(&["--profile=quick", "--package=gpupool", "--no-default-features"])?;
    build_with_cargo(&[&["--profile=quick"], SIMULATED_PACKAGES].concat())?;
    build_shim("--profile=preload", "--features=preload")?;
    lay_out("demo", DEMO)
}

fn build_with_cargo(arguments: &[&str]) -> Result<(), Error> {
    succeed(&mut cargo(&[&["build", "--locked", "--quiet"], arguments].concat())?)
}

fn build_shim(profile: &str, features: &str) -> Result<(), Error> {
    let what = ["--package=gpupool-shim", "--lib", "--crate-type=cdylib"];
    succeed(&mut cargo(&[&["rustc", "--locked", "--quiet", profile, features][..], &what].concat())?)
}

/// Copies what was built into a folder below the target folder; gives the folder.
fn lay_out(name: &str, places: &[Place]) -> Result<PathBuf, Error> {
    let target = target_folder()?;
    let folder = target.join(name);
    fs::create_dir_all(&folder).map_err(Error::file("create", &folder))?;
    // Tests that are started together come here together.
    let lock = folder.join(".lock");
    let locked = File::create(&lock).map_err(Error::file("create", &lock))?;
    locked.lock().map_err(Error::file("lock", &lock))?;
    for (built, laid_out) in places {
        place(&target.join(built), &folder.join(laid_out))?;
    }
    lay_out_preload(&folder.join("lib"))?;
    Ok(folder)
}

/// Lays out the folder beside the library.
pub(crate) fn lay_out_preload(libraries: &Path) -> Result<(), Error> {
    gpupool_preload::layout::lay_out(libraries).map_err(Error::file("lay out", libraries))
}

/// The name under which kubectl finds the binary as its plugin: `kubectl gpupool …`.
fn link_kubectl_plugin(dist: &Path) -> Result<(), Error> {
    let plugin = dist.join("bin/kubectl-gpupool");
    match symlink("gpupool", &plugin) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(Error::file("link", plugin)(error)),
        _ => Ok(()),
    }
}

/// Copies beside the destination, then renames: a program that runs or maps the old file keeps it whole.
pub(crate) fn place(from: &Path, to: &Path) -> Result<(), Error> {
    let folder = to.parent().unwrap_or_else(|| Path::new("."));
    fs::create_dir_all(folder).map_err(Error::file("create", folder))?;
    let new = to.with_extension("new");
    fs::copy(from, &new).map_err(Error::file("copy", from))?;
    fs::rename(&new, to).map_err(Error::file("put in its place", to))
}

/// On standard error itself: the test harness keeps what the print macros write until a test has failed, and somebody
/// who waits for minutes wants to know why now.
pub(crate) fn tell(line: &str) {
    // With standard error gone there is nobody to tell.
    let _ = writeln!(io::stderr(), "{line}");
}

//! The images: gpupool's own, and the published one, with the programs of the tests in it.

use std::path::{Path, PathBuf};
use std::process::Command;

use gpupool_testbed::Image;

use crate::Error;

/// gpupool's image: repository and tag.
pub const GPUPOOL_IMAGE: (&str, &str) = ("docker.io/gpupool/gpupool", env!("CARGO_PKG_VERSION"));

/// The image that the published manifests name.
pub const STRESS_IMAGE: &str = "registry-cn-wulanchabu-vpc.ack.aliyuncs.com/acs/stress:v1.0.4";

/// The image with gpupool, as `dist` has it: the binary, and the library for containers.
pub(crate) fn gpupool(dist: &Path) -> Result<Image, Error> {
    let (repository, tag) = GPUPOOL_IMAGE;
    let image = Image::new(format!("{repository}:{tag}"))
        .shell()?
        .program("usr/bin/gpupool", built(dist, "bin/gpupool")?)?
        .file("usr/lib/libgpupool.so", built(dist, "lib/libgpupool.so")?)
        .entrypoint(["gpupool"]);
    Ok(image)
}

/// The published image: bash, sleep and the like, and `gpu-hold`.
pub(crate) fn stress(dist: &Path) -> Result<Image, Error> {
    let image = Image::new(STRESS_IMAGE).shell()?.program("usr/bin/gpu-hold", compiled(dist, "gpu-hold")?)?;
    Ok(image)
}

fn built(dist: &Path, file: &str) -> Result<PathBuf, Error> {
    let path = dist.join(file);
    if path.exists() { Ok(path) } else { Err(Error::NotBuilt(path)) }
}

/// Compiles a program beside what was built, anew each time: it takes a tenth of a second.
fn compiled(dist: &Path, name: &str) -> Result<PathBuf, Error> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(format!("{name}.c"));
    let program = dist.join(name);
    // Under a name of its own first: tests that run at the same time compile the same program.
    let own = dist.join(format!(".{name}.{}", std::process::id()));
    let output = Command::new("gcc").args(["-O1", "-o"]).arg(&own).arg(&source).arg("-ldl").output();
    let failed = |said: String| Error::Compile { program: source.clone(), said };
    let output = output.map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    std::fs::rename(&own, &program).map_err(|error| failed(error.to_string()))?;
    Ok(program)
}

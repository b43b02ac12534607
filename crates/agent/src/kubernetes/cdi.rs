//! What a sharing container gets beside the driver, as a device of the Container Device Interface: the shim, the file
//! that has it loaded into every program, and the directory of the agent's socket.
//!
//! A device and no mounts of the plugin's answer: a volume of the pod's own would be mounted over those. The shim is
//! copied to a directory of the host, because the runtime mounts from there and not from the agent's image. Beside it goes
//! what programs of other kinds find in its place (`gpupool_preload::layout`): without that, every start of a 32-bit
//! program would be an error of the loader's.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use gpupool_preload::layout::{self, LIBRARY};
use gpupool_wire::LIBRARY_IN_CONTAINERS;
use serde_json::{Value, json};
use thiserror::Error;

/// The device's full name, which the plugin's answer gives to the runtime.
pub(super) const DEVICE: &str = "gpupool.io/shim=all";

/// Kind and name in [`DEVICE`].
const KIND: (&str, &str) = ("gpupool.io/shim", "all");

/// Version of the CDI specification: the oldest that has what is used here, for runtimes that know no newer one.
const VERSION: &str = "0.5.0";

/// The spec's file in the directory of specs.
const SPEC: &str = "gpupool.io-shim.json";

/// The file in the host's directory that names the shim.
const PRELOAD: &str = "ld.so.preload";

/// Where the loader looks for libraries that go into every program.
const PRELOAD_IN_CONTAINERS: &str = "/etc/ld.so.preload";

/// A file that can't be laid out for containers.
#[derive(Debug, Error)]
#[error("cannot put {path} in its place for containers: {source}")]
pub struct InstallError {
    /// The file.
    path: PathBuf,
    /// What the system says.
    source: std::io::Error,
}

/// What is laid out, and where.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    /// The shim that belongs to this agent.
    pub(super) shim: PathBuf,
    /// The host's directory for it.
    pub(super) directory: PathBuf,
    /// The directory of CDI specs.
    pub(super) specs: PathBuf,
    /// The directory of the agent's socket.
    pub(super) sockets: PathBuf,
}

impl Layout {
    /// Lays everything out, or brings it up to date. Containers and programs that run keep the file that they have.
    pub(super) fn install(&self) -> Result<(), InstallError> {
        let library = self.directory.join(LIBRARY);
        let shim =
            std::fs::read(&self.shim).map_err(|source| InstallError { path: self.shim.clone(), source })?;
        put(&library, &shim, 0o755)?;
        layout::lay_out(&self.directory)
            .map_err(|source| InstallError { path: self.directory.join(layout::FOLDER), source })?;
        let preload = layout::preload_path(libraries_in_containers());
        put(&self.directory.join(PRELOAD), format!("{}\n", preload.display()).as_bytes(), 0o644)?;
        put(&self.specs.join(SPEC), self.spec().to_string().as_bytes(), 0o644)
    }

    fn spec(&self) -> Value {
        let by_platform = libraries_in_containers().join(layout::FOLDER);
        let mount = |host: &Path, container: &Path| {
            json!({
                "hostPath": host, "containerPath": container,
                "options": ["ro", "nosuid", "nodev", "bind"],
            })
        };
        let (kind, name) = KIND;
        json!({
            "cdiVersion": VERSION,
            "kind": kind,
            "devices": [{
                "name": name,
                "containerEdits": {
                    "mounts": [
                        mount(&self.directory.join(LIBRARY), Path::new(LIBRARY_IN_CONTAINERS)),
                        mount(&self.directory.join(layout::FOLDER), &by_platform),
                        mount(&self.directory.join(PRELOAD), Path::new(PRELOAD_IN_CONTAINERS)),
                        // The directory and not the socket: an agent that starts again makes another socket there.
                        mount(&self.sockets, Path::new("/run/gpupool")),
                    ],
                },
            }],
        })
    }
}

/// The directory of [`LIBRARY_IN_CONTAINERS`].
fn libraries_in_containers() -> &'static Path {
    Path::new(LIBRARY_IN_CONTAINERS).parent().unwrap_or_else(|| Path::new("/"))
}

/// Puts a file in its place whole, unless it is there already: a file of the same content stays the same file.
fn put(path: &Path, content: &[u8], mode: u32) -> Result<(), InstallError> {
    let write = || -> std::io::Result<()> {
        let right = |found: &std::fs::Metadata| found.permissions().mode() & 0o777 == mode;
        if std::fs::read(path).is_ok_and(|found| found == content)
            && std::fs::metadata(path).is_ok_and(|found| right(&found))
        {
            return Ok(());
        }
        let directory = path.parent().unwrap_or_else(|| Path::new("/"));
        std::fs::create_dir_all(directory)?;
        // A dot before the name: runtimes read every other file of a directory of specs.
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let next = directory.join(format!(".{name}.{}", std::process::id()));
        let mut file = std::fs::File::create(&next)?;
        file.write_all(content)?;
        file.set_permissions(std::fs::Permissions::from_mode(mode))?;
        drop(file);
        std::fs::rename(&next, path)
    };
    write().map_err(|source| InstallError { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    fn layout(place: &Path) -> Layout {
        let shim = place.join("built.so");
        std::fs::write(&shim, "a shim").unwrap();
        Layout { shim, directory: place.join("host"), specs: place.join("cdi"), sockets: place.join("run") }
    }

    #[test]
    fn a_container_gets_the_shim_its_preload_file_and_the_socket_directory_read_only() {
        let place = tempfile::tempdir().unwrap();
        let layout = layout(place.path());
        layout.install().unwrap();
        let spec: Value = serde_json::from_slice(&std::fs::read(layout.specs.join(SPEC)).unwrap()).unwrap();
        assert_eq!(format!("{}={}", spec["kind"].as_str().unwrap(), "all"), DEVICE);
        let mounts = spec["devices"][0]["containerEdits"]["mounts"].as_array().unwrap();
        let in_containers: Vec<&str> =
            mounts.iter().map(|mount| mount["containerPath"].as_str().unwrap()).collect();
        let by_platform = "/usr/lib/gpupool/by-platform";
        assert_eq!(
            in_containers,
            [LIBRARY_IN_CONTAINERS, by_platform, PRELOAD_IN_CONTAINERS, "/run/gpupool"]
        );
        assert!(mounts.iter().all(|mount| mount["options"][0] == "ro"));
        let preload = std::fs::read_to_string(mounts[2]["hostPath"].as_str().unwrap()).unwrap();
        assert_eq!(preload, "/usr/lib/gpupool/by-platform/$PLATFORM/libgpupool.so\n");
        // The folder leads to the library beside it, in the container as on the host.
        let found = std::fs::read(layout.directory.join("by-platform/x86_64/libgpupool.so")).unwrap();
        assert_eq!(found, b"a shim");
        assert_eq!(std::fs::read_to_string(mounts[0]["hostPath"].as_str().unwrap()).unwrap(), "a shim");
    }

    #[test]
    fn a_newer_shim_takes_the_place_and_whoever_holds_the_old_one_keeps_it_whole() {
        let place = tempfile::tempdir().unwrap();
        let layout = layout(place.path());
        layout.install().unwrap();
        let library = layout.directory.join(LIBRARY);
        let held = std::fs::File::open(&library).unwrap();
        let inode = || std::fs::metadata(&library).unwrap().ino();
        let first = inode();
        layout.install().unwrap();
        assert_eq!(inode(), first, "the same shim must stay the same file");
        std::fs::write(&layout.shim, "a newer shim").unwrap();
        layout.install().unwrap();
        assert_ne!(inode(), first);
        assert_eq!(std::fs::read_to_string(&library).unwrap(), "a newer shim");
        assert_eq!(std::io::read_to_string(held).unwrap(), "a shim");
        assert_eq!(std::fs::read_dir(&layout.directory).unwrap().count(), 3, "nothing else is left there");
    }

    #[test]
    fn what_is_missing_is_named() {
        let place = tempfile::tempdir().unwrap();
        let layout = Layout { shim: place.path().join("nowhere.so"), ..layout(place.path()) };
        assert!(layout.install().unwrap_err().to_string().contains("nowhere.so"));
    }
}

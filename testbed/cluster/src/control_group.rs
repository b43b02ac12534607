//! The control groups of a cluster's nodes: made before a kubelet starts, removed when its processes have gone.
//!
//! On version 1 (also beside version 2, "hybrid") each controller has a hierarchy of its own and the group is made in
//! all of them. On version 2 there is one, and the controllers must be switched on for the children of its root, as
//! systemd does.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use ring::digest;

use crate::Error;

/// Where the hierarchies are mounted.
const ROOT: &str = "/sys/fs/cgroup";

/// What the kubelet and runc want to find in a group.
const NEEDED: [&str; 4] = ["cpu", "cpuset", "memory", "pids"];

/// How long the kernel may take to let go of a group whose last process has been waited for.
const LIMIT: Duration = Duration::from_secs(30);

/// The name of the control group that holds all nodes of the cluster in this folder, from the root of the hierarchies.
pub fn control_group(folder: &Path) -> String {
    ControlGroup::of(folder).name
}

/// The groups of the cluster in this folder.
#[derive(Debug)]
pub(crate) struct ControlGroup {
    name: String,
}

impl ControlGroup {
    /// The group of a cluster's folder: the name is found again by whoever clears up after a dead cluster.
    pub(crate) fn of(folder: &Path) -> Self {
        let digest = digest::digest(&digest::SHA256, folder.as_os_str().as_encoded_bytes());
        let short = digest.as_ref().first_chunk().map_or(0, |first| u64::from_be_bytes(*first));
        Self { name: format!("gpupool-testbed-{short:016x}") }
    }

    /// The group of a node, from the root of the hierarchies.
    pub(crate) fn path_of(&self, node: &str) -> String {
        format!("/{}/{node}", self.name)
    }

    /// Makes the group of a node and gives its path, as the kubelet's `cgroupRoot` wants it.
    pub(crate) fn make(&self, node: &str) -> Result<String, Error> {
        check_version_2(Path::new(ROOT))?;
        for hierarchy in hierarchies()? {
            let group = hierarchy.join(&self.name).join(node);
            fs::create_dir_all(&group).map_err(Error::file("create the control group", &group))?;
            let parent = hierarchy.join(&self.name);
            for group in [&parent, &group] {
                hand_down(group, hierarchy == Path::new(ROOT))?;
            }
        }
        Ok(self.path_of(node))
    }

    /// Removes the groups of all nodes. No process may be in them any more; those that are just ending are waited for.
    pub(crate) fn remove(&self) -> Result<(), Error> {
        let Ok(hierarchies) = hierarchies() else { return Ok(()) };
        hierarchies.iter().try_for_each(|hierarchy| {
            let group = hierarchy.join(&self.name);
            let started = Instant::now();
            while let Err(error) = remove_tree(&group) {
                if error.kind() != io::ErrorKind::ResourceBusy || started.elapsed() > LIMIT {
                    return Err(Error::file("remove the control group", &group)(error));
                }
                thread::sleep(Duration::from_millis(10));
            }
            Ok(())
        })
    }
}

/// The mounted hierarchies: one on version 2, one for each controller (and the named one) on version 1.
fn hierarchies() -> Result<Vec<PathBuf>, Error> {
    let root = Path::new(ROOT);
    if root.join("cgroup.procs").exists() {
        return Ok(vec![root.to_owned()]);
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(root).map_err(Error::file("read", root))?.flatten() {
        // `cpu,cpuacct` mounted together is also there as two links.
        let own = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if own && entry.path().join("cgroup.procs").exists() {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// On version 2, the controllers must have been switched on for the root's children: the testbed does not change that
/// for the whole machine.
fn check_version_2(root: &Path) -> Result<(), Error> {
    let path = root.join("cgroup.subtree_control");
    let Ok(on) = fs::read_to_string(&path) else { return Ok(()) };
    let missing: Vec<&str> =
        NEEDED.into_iter().filter(|needed| !on.split_whitespace().any(|it| it == *needed)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Error::Controllers { path, missing: missing.join(" +") })
}

/// What children need of a group: on version 2 the controllers, in version 1's `cpuset` the CPUs and memory nodes.
fn hand_down(group: &Path, version_2: bool) -> Result<(), Error> {
    let set = |file: &str, value: &str| {
        let path = group.join(file);
        fs::write(&path, value).map_err(Error::file("write", path))
    };
    if version_2 {
        return set("cgroup.subtree_control", &NEEDED.map(|needed| format!("+{needed}")).join(" "));
    }
    for file in ["cpuset.cpus", "cpuset.mems"] {
        // Only that one controller's hierarchy has them, and there they start empty.
        let inherited = group.parent().and_then(|parent| fs::read_to_string(parent.join(file)).ok());
        if let Some(inherited) = inherited {
            set(file, inherited.trim())?;
        }
    }
    Ok(())
}

/// Removes the group and those in it. Only the folders can be removed: the files are the kernel's.
fn remove_tree(group: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(group) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries.flatten() {
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_that_are_not_switched_on_are_named_with_the_command_that_does_it() {
        let root = tempfile::tempdir().unwrap();
        // Version 1 has no such file and needs nothing.
        check_version_2(root.path()).unwrap();
        let file = root.path().join("cgroup.subtree_control");
        fs::write(&file, "cpuset cpu io memory pids\n").unwrap();
        check_version_2(root.path()).unwrap();
        fs::write(&file, "cpu memory\n").unwrap();
        let error = check_version_2(root.path()).unwrap_err().to_string();
        assert!(error.contains(&format!("echo +cpuset +pids > {}", file.display())), "{error}");
    }

    #[test]
    fn clusters_in_different_folders_have_different_groups() {
        assert_ne!(control_group(Path::new("/a/people")), control_group(Path::new("/b/people")));
    }
}

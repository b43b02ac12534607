//! The folder that a cluster lives in: private, locked while the cluster lives, removed with it.
//!
//! A process that is killed cannot remove its folder. The kernel drops its lock, though, so whoever comes next
//! can tell which folders are nobody's any more and removes them.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::getuid;

use crate::control_group::ControlGroup;
use crate::{Error, network};

/// Where the components' logs lie, below the folder.
const LOGS: &str = "logs";

/// Longest folder in which the longest socket path still has at most 107 bytes.
const LONGEST_FOLDER: usize = 107 - "/etcd-peer.sock".len();

/// Folder names that the sweep leaves alone: logs of a cluster that failed.
const KEPT: &str = "failed-";

/// Between two tries of the same thing.
const PAUSE: Duration = Duration::from_millis(20);

/// How often a lock is tried before it counts as taken.
const LOCK_TRIES: u32 = 20;

/// How often a folder in which files still appear is removed again, with the same pause: for 20 seconds.
const REMOVAL_TRIES: u32 = 1000;

/// A cluster's folder, held by this process.
#[derive(Debug)]
pub(crate) struct Home {
    folder: PathBuf,
    lock: PathBuf,
    /// The lock is the open file's: it ends with this process at the latest.
    _held: File,
    /// Once removed, the same name may be another cluster's.
    removed: bool,
}

impl Home {
    /// A new folder in the temporary directory; folders of processes that have died are removed first.
    pub(crate) fn temporary() -> Result<Self, Error> {
        let root = std::env::temp_dir().join(format!("gpupool-testbed-{}", getuid().as_raw()));
        private_folder(&root)?;
        // Short, and the only way in: nobody sees a folder whose lock is not held yet.
        let gate = root.join("gate");
        let gate = File::create(&gate)
            .and_then(|file| file.lock().map(|()| file))
            .map_err(Error::file("lock", gate))?;
        sweep(&root)?;
        let folder = tempfile::Builder::new()
            .prefix("c-")
            .tempdir_in(&root)
            .map_err(Error::file("create a folder in", &root))?
            .keep();
        let home = Self::occupy(&folder);
        drop(gate);
        home
    }

    /// The given folder; what a cluster that is gone left there is removed first.
    pub(crate) fn at(folder: &Path) -> Result<Self, Error> {
        if let Some(parent) = folder.parent() {
            fs::create_dir_all(parent).map_err(Error::file("create", parent))?;
        }
        Self::occupy(folder)
    }

    /// Locks the folder, empties it and lays it out.
    fn occupy(folder: &Path) -> Result<Self, Error> {
        if folder.as_os_str().len() > LONGEST_FOLDER {
            return Err(Error::PathTooLong { path: folder.to_owned() });
        }
        let lock = lock_of(folder);
        let mut held = take_lock(&lock)?
            .ok_or_else(|| Error::Occupied { path: folder.to_owned(), pid: pid_in(&lock) })?;
        held.set_len(0)
            .and_then(|()| write!(held, "{}", std::process::id()))
            .map_err(Error::file("write", &lock))?;
        clear(folder)?;
        private_folder(folder)?;
        private_folder(&folder.join(LOGS))?;
        Ok(Self { folder: folder.to_owned(), lock, _held: held, removed: false })
    }

    /// The folder itself.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The file for a component's log.
    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.folder.join(LOGS).join(format!("{name}.log"))
    }

    /// Removes everything.
    pub(crate) fn remove(mut self) -> Result<(), Error> {
        self.removed = true;
        clear(&self.folder)?;
        fs::remove_file(&self.lock).map_err(Error::file("remove", &self.lock))
    }

    /// Removes everything but the logs, and gives the folder they are kept in.
    pub(crate) fn remove_but_logs(self) -> Result<PathBuf, Error> {
        let name = self.folder.file_name().unwrap_or_default().to_string_lossy();
        let kept = self.folder.with_file_name(format!("{KEPT}{name}"));
        // Of a folder with a fixed name only the last failure is kept.
        remove_folder(&kept)?;
        fs::rename(self.folder.join(LOGS), &kept).map_err(Error::file("keep the logs in", &kept))?;
        self.remove().map(|()| kept)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if !self.removed {
            // Nobody is left to tell; the next cluster's sweep tries again.
            let _ = clear(&self.folder).map(|()| fs::remove_file(&self.lock));
        }
    }
}

/// The process that runs a cluster in this folder, or `None` when nobody does.
pub fn holder(folder: &Path) -> Result<Option<u32>, Error> {
    let path = lock_of(folder);
    let lock = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(Error::file("open", &path))?,
    };
    // Shared: two who ask at the same time must not take each other for a holder.
    Ok(lock.try_lock_shared().is_err().then(|| pid_in(&path)))
}

/// Removes what a cluster whose process has died left in this folder; `false` when there was nothing.
pub fn remove_remains(folder: &Path) -> Result<bool, Error> {
    if let Some(pid) = holder(folder)? {
        return Err(Error::Occupied { path: folder.to_owned(), pid });
    }
    let lock = lock_of(folder);
    let remains = folder.exists() || lock.exists();
    clear(folder)?;
    match fs::remove_file(&lock) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::file("remove", lock)(error)),
        _ => Ok(remains),
    }
}

/// Writes a file that only its owner can read.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<(), Error> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(Error::file("write", path))
}

fn lock_of(folder: &Path) -> PathBuf {
    folder.with_extension("lock")
}

/// Takes the lock; `None` when somebody else has it.
fn take_lock(path: &Path) -> Result<Option<File>, Error> {
    // Those who only ask hold it for an instant: one refusal is no proof.
    for _ in 0..LOCK_TRIES {
        // Not emptied: until it is locked, the number in it is its holder's.
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
        let file = file.map_err(Error::file("open", path))?;
        // A holder that ends removes the file: a lock on what is no longer there keeps nobody out.
        if file.try_lock().is_ok() && same_file(&file, path) {
            return Ok(Some(file));
        }
        std::thread::sleep(PAUSE);
    }
    Ok(None)
}

/// Whether the open file is the one that is found under this path.
fn same_file(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(open), Ok(found)) => (open.dev(), open.ino()) == (found.dev(), found.ino()),
        _ => false,
    }
}

/// The process id in a lock file; 0 when its holder has not written it yet.
fn pid_in(lock: &Path) -> u32 {
    fs::read_to_string(lock).ok().and_then(|text| text.trim().parse().ok()).unwrap_or_default()
}

/// Creates the folder with access for its owner only, or makes sure that it is like that.
fn private_folder(path: &Path) -> Result<(), Error> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(Error::file("create", path)(error));
        }
        _ => (),
    }
    let found = fs::symlink_metadata(path).map_err(Error::file("look at", path))?;
    let others = found.mode() & 0o077;
    let private = found.is_dir() && found.uid() == getuid().as_raw() && others == 0;
    if private { Ok(()) } else { Err(Error::NotOurs { path: path.to_owned() }) }
}

/// Removes the folders whose process is gone. The caller holds the gate.
fn sweep(root: &Path) -> Result<(), Error> {
    for entry in fs::read_dir(root).map_err(Error::file("read", root))?.flatten() {
        let path = entry.path();
        let kept = entry.file_name().to_string_lossy().starts_with(KEPT);
        if !kept && path.is_dir() && holder(&path)?.is_none() {
            remove_remains(&path)?;
        }
    }
    Ok(())
}

/// Removes everything that belongs to a cluster's folder and does not end with its processes.
fn clear(folder: &Path) -> Result<(), Error> {
    network::remove_device(folder)?;
    ControlGroup::of(folder).remove()?;
    remove_folder(folder)
}

/// Removes the folder if it is there. Components that are just being killed may still create a file in it.
fn remove_folder(path: &Path) -> Result<(), Error> {
    let mut tries = 0;
    loop {
        match fs::remove_dir_all(path) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty && tries < REMOVAL_TRIES => {
                tries += 1;
                std::thread::sleep(PAUSE);
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Error::file("remove", path)(error));
            }
            _ => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder in the temporary root, as a process that was killed leaves it: nobody holds its lock.
    fn abandoned(root: &Path) -> PathBuf {
        let folder = tempfile::Builder::new().prefix("c-").tempdir_in(root).unwrap().keep();
        fs::write(folder.join("left"), "behind").unwrap();
        fs::write(lock_of(&folder), "1").unwrap();
        folder
    }

    #[test]
    fn a_new_cluster_removes_what_dead_ones_left_and_touches_no_living_one() {
        let living = Home::temporary().unwrap();
        let dead = abandoned(living.folder().parent().unwrap());
        let next = Home::temporary().unwrap();
        assert!(!dead.exists() && !lock_of(&dead).exists());
        assert!(living.folder().is_dir() && next.folder() != living.folder());
        let folder = living.folder().to_owned();
        living.remove().unwrap();
        assert!(!folder.exists() && !lock_of(&folder).exists());
    }

    #[test]
    fn a_folder_has_one_holder_and_is_free_when_that_is_gone() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("cluster");
        let home = Home::at(&folder).unwrap();
        let this = std::process::id();
        assert_eq!(holder(&folder).unwrap(), Some(this));
        assert!(matches!(Home::at(&folder), Err(Error::Occupied { pid, .. }) if pid == this));
        assert!(matches!(remove_remains(&folder), Err(Error::Occupied { .. })));
        home.remove().unwrap();
        assert_eq!(holder(&folder).unwrap(), None);
        assert!(!remove_remains(&folder).unwrap());
    }

    #[test]
    fn a_folder_that_others_can_enter_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let open = parent.path().join("open");
        DirBuilder::new().mode(0o755).create(&open).unwrap();
        assert!(matches!(private_folder(&open), Err(Error::NotOurs { .. })));
        let link = parent.path().join("link");
        std::os::unix::fs::symlink(parent.path(), &link).unwrap();
        assert!(matches!(private_folder(&link), Err(Error::NotOurs { .. })));
    }

    #[test]
    fn logs_of_a_failed_cluster_stay_and_nothing_else() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("cluster");
        let home = Home::at(&folder).unwrap();
        fs::write(home.log("etcd"), "said").unwrap();
        let kept = home.remove_but_logs().unwrap();
        assert_eq!(fs::read_to_string(kept.join("etcd.log")).unwrap(), "said");
        assert!(!folder.exists() && !lock_of(&folder).exists());
    }
}

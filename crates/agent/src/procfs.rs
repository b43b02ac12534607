//! What `/proc` says about processes: parents, start times, the boot. Nothing here decides who may do what.
//!
//! Whether a process has ended is not said here: the state that `/proc` shows is its first thread's, which may end long
//! before the others (`crate::peer` knows, by pidfd). The first thread has no memory map, program or descriptors any
//! more then, so these are asked of a thread that still has.
//!
//! The root is a value, so that tests can lay out a `/proc` of their own.

use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

/// Room for a `stat` line: 52 numbers of at most 20 digits and a name of at most 64 bytes.
const LONGEST_STAT: usize = 2048;

/// How many threads of a process are looked at for one that still runs. Only the first can end before the others and
/// stay, unless somebody traces them.
const MOST_THREADS: usize = 64;

/// A process for as long as the machine is up: the kernel gives out ids again, but not with the same start time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct ProcessKey {
    /// The process id in the agent's pid namespace, never 0.
    pub(crate) pid: u32,
    /// Clock ticks after boot at which it started (`/proc/<pid>/stat`, field 22).
    pub(crate) start: u64,
}

/// What one line of `/proc/<pid>/stat` tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    /// The process itself.
    pub(crate) key: ProcessKey,
    /// Its parent's id, 0 where it has none in this namespace.
    pub(crate) parent: u32,
}

/// Who is whose parent.
pub(crate) trait ProcessTable: std::fmt::Debug {
    /// The process with this id, or nothing when there is none.
    fn stat(&self, pid: u32) -> Option<Stat>;
}

impl ProcessTable for Proc {
    fn stat(&self, pid: u32) -> Option<Stat> {
        Self::stat(self, pid)
    }
}

/// A mounted `/proc`.
#[derive(Debug, Clone)]
pub(crate) struct Proc {
    root: PathBuf,
}

impl Default for Proc {
    fn default() -> Self {
        Self::at("/proc")
    }
}

impl Proc {
    /// A `/proc` at another place.
    pub(crate) fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The process's line, or nothing when there is no such process.
    pub(crate) fn stat(&self, pid: u32) -> Option<Stat> {
        let mut line = [0; LONGEST_STAT];
        let mut path = self.root.clone();
        path.extend([pid.to_string().as_str(), "stat"]);
        let file = rustix::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        // The kernel gives the whole line to the first read; programs wait while this is done, so it is the only one.
        let length = rustix::io::read(&file, &mut line).ok()?;
        parse_stat(line.get(..length)?).filter(|stat| stat.key.pid == pid)
    }

    /// The process's memory map, to be read.
    pub(crate) fn memory_map(&self, pid: u32) -> std::io::Result<std::fs::File> {
        std::fs::File::open(self.running_thread(pid).join("maps"))
    }

    /// The file of the program that a process runs, to be read.
    pub(crate) fn program(&self, pid: u32) -> std::io::Result<std::fs::File> {
        std::fs::File::open(self.running_thread(pid).join("exe"))
    }

    /// What the kernel says about the process's cgroups, or nothing when there is no such process.
    pub(crate) fn cgroup(&self, pid: u32) -> Option<String> {
        std::fs::read_to_string(self.running_thread(pid).join("cgroup")).ok()
    }

    /// The path that leads to the file of one of the process's mappings (`start-end` of its memory map). It is for a
    /// whole process, so it stands by the id of a thread, and whoever follows it must look at what it leads to.
    pub(crate) fn mapped_file(&self, pid: u32, range: &str) -> PathBuf {
        let thread = self.running_thread(pid);
        let id = thread.file_name().unwrap_or_default();
        self.root.join(id).join("map_files").join(range)
    }

    /// The names of all descriptors of a process, as paths that lead to what they stand for.
    pub(crate) fn descriptors(&self, pid: u32) -> impl Iterator<Item = PathBuf> + use<> {
        let entries = std::fs::read_dir(self.running_thread(pid).join("fd")).into_iter().flatten();
        entries.filter_map(|entry| Some(entry.ok()?.path()))
    }

    /// The directory of a thread of the process that still runs; the first's, if it can't be told that it does not.
    pub(crate) fn running_thread(&self, pid: u32) -> PathBuf {
        let first = self.root.join(pid.to_string());
        if has_program(&first) {
            return first;
        }
        // Below the process: there an id that was given out again leads to nobody.
        let threads = std::fs::read_dir(first.join("task")).into_iter().flatten().take(MOST_THREADS);
        threads.filter_map(|thread| Some(thread.ok()?.path())).find(|path| has_program(path)).unwrap_or(first)
    }

    /// All processes that descend from `ancestor` at this moment, itself not included; also those that have ended and
    /// wait for their parent to look.
    pub(crate) fn descendants(&self, ancestor: ProcessKey) -> Vec<ProcessKey> {
        let Ok(entries) = std::fs::read_dir(&self.root) else { return Vec::new() };
        let all: Vec<Stat> = entries
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter_map(|pid: u32| self.stat(pid))
            .collect();
        let mut found = vec![ancestor];
        let mut looked_at = 0;
        while let Some(parent) = found.get(looked_at).copied() {
            looked_at += 1;
            // A child is never older than its parent: an id that was given out again is no parent.
            found.extend(
                all.iter()
                    .filter(|child| child.parent == parent.pid && child.key.start >= parent.start)
                    .map(|child| child.key),
            );
        }
        found.remove(0);
        found
    }

    /// The kernel's name for this boot: process ids and start times mean nothing after the next one.
    pub(crate) fn boot_id(&self) -> std::io::Result<String> {
        let text = std::fs::read_to_string(self.root.join("sys/kernel/random/boot_id"))?;
        Ok(text.trim().to_owned())
    }
}

/// Whether a thread has a program, as all have until they end; also where one may not look.
fn has_program(thread: &Path) -> bool {
    let program = std::fs::read_link(thread.join("exe"));
    program.map_or_else(|failure| failure.kind() != std::io::ErrorKind::NotFound, |_| true)
}

/// Takes a `stat` line apart. The name in brackets may hold anything, brackets and line ends too, so the
/// fields are counted from the last closing bracket.
fn parse_stat(text: &[u8]) -> Option<Stat> {
    let open = text.iter().position(|byte| *byte == b'(')?;
    let close = text.iter().rposition(|byte| *byte == b')')?;
    let pid = std::str::from_utf8(text.get(..open)?).ok()?.trim().parse().ok()?;
    let rest = std::str::from_utf8(text.get(close + 1..)?).ok()?;
    // After the name: the first thread's state is field 3, ppid 4, starttime 22.
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    Some(Stat {
        key: ProcessKey { pid, start: fields.get(19)?.parse().ok()? },
        parent: fields.get(1)?.parse().ok()?,
    })
}

#[cfg(test)]
pub(crate) mod fixture {
    //! A `/proc` made of files.

    use super::Proc;

    /// Writes `(pid, parent, start)` as a `/proc` into a temporary directory.
    pub(crate) fn of(processes: &[(u32, u32, u64)]) -> (tempfile::TempDir, Proc) {
        let place = tempfile::tempdir().unwrap();
        for (pid, parent, start) in processes {
            let directory = place.path().join(pid.to_string());
            std::fs::create_dir(&directory).unwrap();
            std::fs::write(directory.join("stat"), line(*pid, "a program", *parent, *start)).unwrap();
        }
        let proc = Proc::at(place.path());
        (place, proc)
    }

    pub(crate) fn line(pid: u32, name: &str, parent: u32, start: u64) -> String {
        let between = ["0"; 17].join(" ");
        format!("{pid} ({name}) S {parent} {between} {start} 0 0\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_full_of_brackets_does_not_shift_the_fields() {
        let stat = parse_stat(fixture::line(42, "evil) S 1 (", 7, 99).as_bytes()).unwrap();
        assert_eq!(stat, Stat { key: ProcessKey { pid: 42, start: 99 }, parent: 7 });
    }

    #[test]
    fn a_cut_line_tells_nothing() {
        let line = fixture::line(42, "a", 7, 99);
        for length in 0..line.len() - "99 0 0\n".len() {
            assert_eq!(parse_stat(&line.as_bytes()[..length]), None, "{length} bytes");
        }
    }

    #[test]
    fn this_process_has_its_real_parent() {
        let stat = Proc::default().stat(std::process::id()).unwrap();
        assert_eq!(stat.parent, std::os::unix::process::parent_id());
    }

    #[test]
    fn a_process_whose_first_thread_has_ended_is_read_through_another() {
        let (place, proc) = fixture::of(&[(10, 1, 100), (11, 1, 110)]);
        let thread = |id: &str| place.path().join(id);
        std::fs::create_dir_all(thread("10/task/10")).unwrap();
        std::fs::create_dir_all(thread("10/task/12")).unwrap();
        assert_eq!(proc.running_thread(10), thread("10"), "nobody else has a program either");
        std::os::unix::fs::symlink("/bin/sh", thread("10/task/12/exe")).unwrap();
        std::fs::write(thread("10/task/12/cgroup"), "0::/pod").unwrap();
        assert_eq!(proc.running_thread(10), thread("10/task/12"));
        assert_eq!(proc.cgroup(10).as_deref(), Some("0::/pod"));
        assert_eq!(proc.mapped_file(10, "1-2"), thread("12/map_files/1-2"));
        std::os::unix::fs::symlink("/bin/sh", thread("10/exe")).unwrap();
        assert_eq!(proc.running_thread(10), thread("10"));
        assert_eq!(proc.running_thread(11), thread("11"));
    }

    #[test]
    fn descendants_are_found_at_any_depth_and_a_reused_id_is_no_parent() {
        let (_place, proc) = fixture::of(&[
            (10, 1, 100),
            (11, 10, 110),
            (12, 11, 120),
            (20, 1, 90),
            // 30 is older than 11: its parent was another process with that id.
            (30, 11, 105),
        ]);
        let mut found = proc.descendants(ProcessKey { pid: 10, start: 100 });
        found.sort();
        assert_eq!(found, [ProcessKey { pid: 11, start: 110 }, ProcessKey { pid: 12, start: 120 }]);
    }
}

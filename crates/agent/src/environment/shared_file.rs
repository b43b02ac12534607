//! Finds a file in memory that the agent once shared, in a process that still has it mapped: programs close descriptors
//! that they don't know, but leave mappings alone. Opening a mapping is root's right; any other agent opens a descriptor,
//! where the process still has one.
//!
//! What a process has is its own choice, and opening or measuring a stranger's file may wait for a stranger. So a path is
//! only looked up, and what it leads to is named by the kernel alone, until that is the file that is looked for.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};

use crate::procfs::Proc;
use crate::shared_memory::Inode;

/// How much of a memory map is read, in bytes: as many mappings as the kernel allows by default, with short names.
const LONGEST_MAP: u64 = 8 << 20;

/// How many descriptors of one process are looked at.
const MOST_DESCRIPTORS: usize = 1 << 16;

/// Opens the file for reading and writing, if the process has it mapped.
pub(super) fn open(proc: &Proc, pid: u32, inode: Inode) -> Option<OwnedFd> {
    let range = mapping(proc, pid, inode)?;
    open_if(&proc.mapped_file(pid, &range), inode).or_else(|| {
        proc.descriptors(pid).take(MOST_DESCRIPTORS).find_map(|descriptor| open_if(&descriptor, inode))
    })
}

/// Where the process has the file mapped: the first field of a line of its memory map.
fn mapping(proc: &Proc, pid: u32, inode: Inode) -> Option<String> {
    let map = BufReader::new(proc.memory_map(pid).ok()?.take(LONGEST_MAP));
    let mut lines = map.split(b'\n').map_while(Result::ok);
    lines.find_map(|line| range_of(&String::from_utf8_lossy(&line), inode))
}

/// The range in a line of a memory map, if it shows this file: `range rights offset major:minor number path`.
fn range_of(line: &str, inode: Inode) -> Option<String> {
    let mut fields = line.split_ascii_whitespace();
    let range = fields.next()?;
    let (major, minor) = fields.nth(2)?.split_once(':')?;
    let [major, minor] = [major, minor].map(|number| u32::from_str_radix(number, 16).ok());
    let device = rustix::fs::makedev(major?, minor?);
    let number: u64 = fields.next()?.parse().ok()?;
    (Inode { device, number } == inode).then(|| range.to_owned())
}

/// Opens what a path of `/proc` leads to, if it is this file.
fn open_if(path: &Path, inode: Inode) -> Option<OwnedFd> {
    let place = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    // Without asking the file system that it lies in, which may be a program's own.
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = rustix::fs::statx(&place, c"", flags, StatxFlags::INO).ok()?;
    let device = rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor);
    if (Inode { device, number: found.stx_ino }) != inode {
        return None;
    }
    let again = format!("/proc/self/fd/{}", place.as_fd().as_raw_fd());
    rustix::fs::open(again, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared_memory::{self, SharedMemory};

    #[test]
    fn a_mapped_file_is_found_without_any_descriptor_of_it() {
        let memory = SharedMemory::create("a-ledger", 4096, rustix::fs::SealFlags::SHRINK).unwrap();
        let inode = shared_memory::inode(memory.as_fd()).unwrap();
        let proc = Proc::default();
        let range = mapping(&proc, std::process::id(), inode).expect("it is mapped");
        assert_eq!(range, format!("{:x}-{:x}", memory.start() as usize, memory.start() as usize + 4096));
        // Only root may open a mapping; others find the descriptor.
        let found = open(&proc, std::process::id(), inode).expect("it is found");
        assert_eq!(shared_memory::inode(found.as_fd()).unwrap(), inode);
        drop((memory, found));
        assert_eq!(mapping(&proc, std::process::id(), inode), None);
        assert!(open(&proc, std::process::id(), inode).is_none());
    }

    #[test]
    fn a_line_of_a_memory_map_names_its_file_by_device_and_number() {
        let line = "7f10-7f20 rw-s 00000000 00:01 1033 /memfd:gpupool-ledger (deleted)";
        let inode = |device, number| Inode { device, number };
        assert_eq!(range_of(line, inode(1, 1033)).as_deref(), Some("7f10-7f20"));
        for (device, number) in [(2, 1033), (1, 1034), (0x100, 1033)] {
            assert_eq!(range_of(line, inode(device, number)), None);
        }
        for line in ["", "7f10-7f20", "7f10-7f20 rw-s 00000000 00:01", "7f10-7f20 rw-s 00000000 zz:01 1033"] {
            assert_eq!(range_of(line, inode(1, 1033)), None, "{line}");
        }
    }
}

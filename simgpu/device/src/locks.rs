//! Liveness: one POSIX record lock per process on the state file.
//!
//! The locked bytes lie far beyond the end of the file. Questions are asked as an open file description
//! (`F_OFD_GETLK`), because a plain `F_GETLK` does not see the asking process's own locks.

use std::{ffi::CStr, os::fd::RawFd};

/// Byte that stands for slot 0.
const SLOTS: i64 = 1 << 40;
/// Byte that stands for pid 0 while a process chooses its slot.
const JOINING: i64 = 1 << 41;

/// Who holds a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlotHolder {
    /// Nobody: the slot was never used or its process is gone.
    Nobody,
    /// A live process; its pid in the asking process's namespace, `None` where it can't be seen from there.
    Process(Option<u32>),
}

fn record(kind: libc::c_int, start: i64) -> libc::flock {
    // SAFETY: flock is a plain structure of integers; zero is valid for each.
    let mut record: libc::flock = unsafe { std::mem::zeroed() };
    record.l_type = i16::try_from(kind).unwrap_or_default();
    record.l_whence = 0;
    record.l_start = start;
    record.l_len = 1;
    record
}

fn slot_byte(slot: usize) -> i64 {
    SLOTS + i64::try_from(slot).unwrap_or_default()
}

/// Who holds `slot`, the asking process included.
pub(crate) fn holder(fd: RawFd, slot: usize) -> SlotHolder {
    let mut answer = record(libc::F_WRLCK, slot_byte(slot));
    // SAFETY: fcntl reads and writes the structure it is given.
    let result = unsafe { libc::fcntl(fd, libc::F_OFD_GETLK, &raw mut answer) };
    if result != 0 {
        // Better to keep a dead process's memory than to give away a live one's.
        return SlotHolder::Process(None);
    }
    if answer.l_type == i16::try_from(libc::F_UNLCK).unwrap_or_default() {
        return SlotHolder::Nobody;
    }
    SlotHolder::Process(u32::try_from(answer.l_pid).ok().filter(|&pid| pid != 0))
}

/// Takes `slot` for this process unless another one holds it. The lock lasts until the process ends.
pub(crate) fn try_hold(fd: RawFd, slot: usize) -> bool {
    let wanted = record(libc::F_WRLCK, slot_byte(slot));
    // SAFETY: fcntl reads the structure it is given.
    unsafe { libc::fcntl(fd, libc::F_SETLK, &raw const wanted) == 0 }
}

/// Runs `choose` while no other copy of this code in the same process does: each copy has its own descriptor, so an
/// open-file-description lock on a byte of the process's own tells them apart. Other processes use other bytes.
pub(crate) fn one_at_a_time<T>(fd: RawFd, choose: impl FnOnce() -> T) -> T {
    let byte = JOINING + i64::from(std::process::id());
    let (lock, unlock) = (record(libc::F_WRLCK, byte), record(libc::F_UNLCK, byte));
    // SAFETY: fcntl reads the structures it is given. Interrupted waits are repeated.
    unsafe {
        while libc::fcntl(fd, libc::F_OFD_SETLKW, &raw const lock) != 0
            && *libc::__errno_location() == libc::EINTR
        {}
    }
    let chosen = choose();
    // SAFETY: as above.
    unsafe { libc::fcntl(fd, libc::F_OFD_SETLK, &raw const unlock) };
    chosen
}

// What follows is about the file of bytes, where all locks are those of open file descriptions.

/// Byte of the file of bytes that is locked while segments are changed.
const SEGMENTS: i64 = 1 << 60;
/// Byte that stands for an exported descriptor of segment 0.
const EXPORTS: i64 = 1 << 61;

/// Opens a file, making it with `mode` if that is not 0.
pub(crate) fn open(path: &CStr, mode: u32) -> Option<RawFd> {
    let make = if mode == 0 { 0 } else { libc::O_CREAT };
    // SAFETY: the path ends with a zero byte.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC | make, mode) };
    if fd < 0 {
        return None;
    }
    if mode != 0 {
        // SAFETY: just opened. Where it is another user's file its mode is right already.
        unsafe { libc::fchmod(fd, mode) };
    }
    Some(fd)
}

/// Runs `work` while no other process does. The kernel drops the lock when its process dies.
pub(crate) fn alone<T>(fd: RawFd, work: impl FnOnce() -> T) -> T {
    let (lock, unlock) = (record(libc::F_WRLCK, SEGMENTS), record(libc::F_UNLCK, SEGMENTS));
    // SAFETY: fcntl reads the structures it is given. Interrupted waits are repeated.
    unsafe {
        while libc::fcntl(fd, libc::F_OFD_SETLKW, &raw const lock) != 0
            && *libc::__errno_location() == libc::EINTR
        {}
    }
    let done = work();
    // SAFETY: as above.
    unsafe { libc::fcntl(fd, libc::F_OFD_SETLK, &raw const unlock) };
    done
}

fn export_byte(index: usize) -> i64 {
    EXPORTS + i64::try_from(index).unwrap_or_default()
}

/// Makes an open descriptor one that stands for segment `index`: a lock that lasts as long as the description, and an
/// offset that says which one.
pub(crate) fn mark_export(descriptor: RawFd, index: usize) -> bool {
    let lock = record(libc::F_RDLCK, export_byte(index));
    // SAFETY: fcntl reads the structure it is given.
    unsafe {
        libc::fcntl(descriptor, libc::F_OFD_SETLK, &raw const lock) == 0
            && libc::lseek(descriptor, i64::try_from(index + 1).unwrap_or_default(), libc::SEEK_SET) > 0
    }
}

/// Whether a descriptor that stands for segment `index` is open anywhere.
pub(crate) fn exported(fd: RawFd, index: usize) -> bool {
    let mut answer = record(libc::F_WRLCK, export_byte(index));
    // SAFETY: fcntl reads and writes the structure it is given.
    let result = unsafe { libc::fcntl(fd, libc::F_OFD_GETLK, &raw mut answer) };
    // Better to keep memory than to give away what somebody holds.
    result != 0 || answer.l_type != i16::try_from(libc::F_UNLCK).unwrap_or_default()
}

/// Which segment a descriptor stands for; `None` where it is not one of the file `fd`.
pub(crate) fn export_of(fd: RawFd, descriptor: RawFd) -> Option<i64> {
    // SAFETY: both structures are ours to be written; a wrong descriptor is an error.
    let same = unsafe {
        let (mut ours, mut theirs): (libc::stat, libc::stat) = (std::mem::zeroed(), std::mem::zeroed());
        libc::fstat(fd, &raw mut ours) == 0
            && libc::fstat(descriptor, &raw mut theirs) == 0
            && (ours.st_dev, ours.st_ino) == (theirs.st_dev, theirs.st_ino)
    };
    // SAFETY: the descriptor is one of the file of bytes.
    let offset = if same { unsafe { libc::lseek(descriptor, 0, libc::SEEK_CUR) } } else { -1 };
    Some(offset - 1).filter(|&index| index >= 0)
}

/// Makes the file at least `size` bytes long.
pub(crate) fn extend(fd: RawFd, size: u64) -> Option<()> {
    let size = i64::try_from(size).ok()?;
    // SAFETY: the structure is ours to be written; the descriptor is an open file's.
    let done = unsafe {
        let mut now: libc::stat = std::mem::zeroed();
        libc::fstat(fd, &raw mut now) == 0 && (now.st_size >= size || libc::ftruncate(fd, size) == 0)
    };
    done.then_some(())
}

/// Forgets bytes of the file: they read as zeros and take no room.
pub(crate) fn punch(fd: RawFd, offset: u64, length: u64) {
    if let (Ok(offset), Ok(length)) = (i64::try_from(offset), i64::try_from(length))
        && length > 0
    {
        // SAFETY: the descriptor is an open file's.
        unsafe {
            libc::fallocate(fd, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, offset, length)
        };
    }
}

//! Liveness: one POSIX record lock per process on the state file.
//!
//! The locked bytes lie far beyond the end of the file. Questions are asked as an open file description
//! (`F_OFD_GETLK`), because a plain `F_GETLK` does not see the asking process's own locks.

use std::os::fd::RawFd;

/// Byte that stands for slot 0.
const SLOTS: i64 = 1 << 40;
/// Byte that stands for pid 0 while a process chooses its slot.
const JOINING: i64 = 1 << 41;

/// Who holds a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holder {
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
pub(crate) fn holder(fd: RawFd, slot: usize) -> Holder {
    let mut answer = record(libc::F_WRLCK, slot_byte(slot));
    // SAFETY: fcntl reads and writes the structure it is given.
    let result = unsafe { libc::fcntl(fd, libc::F_OFD_GETLK, &raw mut answer) };
    if result != 0 {
        // Better to keep a dead process's memory than to give away a live one's.
        return Holder::Process(None);
    }
    if answer.l_type == i16::try_from(libc::F_UNLCK).unwrap_or_default() {
        return Holder::Nobody;
    }
    Holder::Process(u32::try_from(answer.l_pid).ok().filter(|&pid| pid != 0))
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

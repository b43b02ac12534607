//! The kernel, called directly.
//!
//! Not through libc: a hook must leave `errno` alone, must be no cancellation point, and must not bind to symbol
//! versions that older systems lack (`fstat` is 2.33). Results are the kernel's, errors its positive error numbers.

use core::arch::asm;
use core::ffi::{CStr, c_char, c_void};
use core::ptr;

/// A Linux error number.
pub(crate) type Errno = i32;

/// One system call.
///
/// # Safety
/// The arguments must be what the call of that number asks for.
unsafe fn call(number: libc::c_long, a: [usize; 6]) -> Result<usize, Errno> {
    let answer: i64;
    // SAFETY: the kernel keeps all registers but these; memory is the caller's promise.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => answer,
            in("rdi") a[0], in("rsi") a[1], in("rdx") a[2], in("r10") a[3], in("r8") a[4], in("r9") a[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    usize::try_from(answer).map_err(|_| i32::try_from(answer.unsigned_abs()).unwrap_or(libc::EINVAL))
}

/// An address as a system call takes it.
fn at<T>(thing: *const T) -> usize {
    thing.expose_provenance()
}

/// A descriptor as a system call takes it.
fn fd_word(fd: i32) -> usize {
    // Negative numbers stay negative for the kernel, which answers with an error.
    (fd as isize).cast_unsigned()
}

/// Whether a path exists.
pub(crate) fn exists(path: &CStr) -> bool {
    // SAFETY: a path that ends with NUL, and F_OK (0).
    unsafe { call(libc::SYS_access, [at(path.as_ptr()), 0, 0, 0, 0, 0]) }.is_ok()
}

/// What tells one file from another: device and inode; and its size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileIdentity {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) size: u64,
    /// It is a character device: every descriptor of that device is of the one file.
    pub(crate) is_device_node: bool,
}

/// Identity of an open file.
#[inline(never)]
pub(crate) fn identify(fd: i32) -> Result<FileIdentity, Errno> {
    let mut stat = core::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the kernel fills the structure, which is its own on this architecture.
    unsafe { call(libc::SYS_fstat, [fd_word(fd), at(stat.as_mut_ptr()), 0, 0, 0, 0]) }?;
    // SAFETY: all zero was a valid value already.
    let stat = unsafe { stat.assume_init() };
    Ok(FileIdentity {
        device: stat.st_dev,
        inode: stat.st_ino,
        size: u64::try_from(stat.st_size).unwrap_or(0),
        is_device_node: stat.st_mode & libc::S_IFMT == libc::S_IFCHR,
    })
}

/// Where in its file a descriptor stands; 0 where it has no place.
pub(crate) fn position(fd: i32) -> u64 {
    let here = libc::SEEK_CUR.unsigned_abs() as usize;
    // SAFETY: numbers only, and nothing moves.
    unsafe { call(libc::SYS_lseek, [fd_word(fd), 0, here, 0, 0, 0]) }.unwrap_or(0) as u64
}

/// Closes a descriptor.
pub(crate) fn close(fd: i32) {
    // SAFETY: a number; the caller owns it.
    let _ = unsafe { call(libc::SYS_close, [fd_word(fd), 0, 0, 0, 0, 0]) };
}

/// A copy of a descriptor with a number of at least `lowest`, closed on exec.
pub(crate) fn duplicate_above(fd: i32, lowest: usize) -> Result<i32, Errno> {
    let command = libc::F_DUPFD_CLOEXEC.unsigned_abs() as usize;
    // SAFETY: numbers only.
    let copy = unsafe { call(libc::SYS_fcntl, [fd_word(fd), command, lowest, 0, 0, 0]) }?;
    i32::try_from(copy).map_err(|_| libc::EBADF)
}

/// A new Unix packet socket, closed on exec, whose calls give up after a second.
pub(crate) fn packet_socket() -> Result<i32, Errno> {
    let kind = (libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC).unsigned_abs() as usize;
    let family = libc::AF_UNIX.unsigned_abs() as usize;
    // SAFETY: numbers only.
    let fd = unsafe { call(libc::SYS_socket, [family, kind, 0, 0, 0, 0]) }?;
    let fd = i32::try_from(fd).map_err(|_| libc::EBADF)?;
    let patience = libc::timeval { tv_sec: 1, tv_usec: 0 };
    let (level, name) = (libc::SOL_SOCKET.unsigned_abs() as usize, libc::SO_SNDTIMEO.unsigned_abs() as usize);
    // SAFETY: a timeval of the size that is told. Without it, connecting to a stopped agent could take for ever.
    let _ = unsafe {
        call(
            libc::SYS_setsockopt,
            [fd_word(fd), level, name, at(&raw const patience), size_of::<libc::timeval>(), 0],
        )
    };
    Ok(fd)
}

/// Connects a socket to the Unix address of `path`.
pub(crate) fn connect(fd: i32, path: &[u8]) -> Result<(), Errno> {
    const FAMILY: libc::sa_family_t = 1;
    const _: () = assert!(FAMILY as i32 == libc::AF_UNIX);
    let mut address = libc::sockaddr_un { sun_family: FAMILY, sun_path: [0; 108] };
    if path.len() >= address.sun_path.len() {
        return Err(libc::ENAMETOOLONG);
    }
    for (to, from) in address.sun_path.iter_mut().zip(path) {
        *to = from.cast_signed();
    }
    loop {
        let place = [fd_word(fd), at(&raw const address), size_of::<libc::sockaddr_un>(), 0, 0, 0];
        // SAFETY: an address of the length that is told.
        match unsafe { call(libc::SYS_connect, place) } {
            Err(libc::EINTR) => {}
            other => return other.map(|_| ()),
        }
    }
}

/// Most descriptors of one packet.
pub(crate) const MOST_FDS: usize = 3;

/// Room for the control part of a message with [`MOST_FDS`] descriptors: its header (16) and the numbers, rounded up.
const CONTROL_WORDS: usize = (16 + MOST_FDS * 4).div_ceil(8);

/// Sends a packet. Never raises SIGPIPE.
pub(crate) fn send(fd: i32, packet: &[u8]) -> Result<(), Errno> {
    let flags = libc::MSG_NOSIGNAL.unsigned_abs() as usize;
    loop {
        let place = [fd_word(fd), at(packet.as_ptr()), packet.len(), flags, 0, 0];
        // SAFETY: a packet of the length that is told, and no address.
        match unsafe { call(libc::SYS_sendto, place) } {
            Err(libc::EINTR) => {}
            other => return other.map(|_| ()),
        }
    }
}

/// Two 32-bit numbers in the order of memory.
fn pair(low: i32, high: i32) -> u64 {
    u64::from(low.cast_unsigned()) | (u64::from(high.cast_unsigned()) << 32)
}

/// A packet that came in: its length in the buffer, and the descriptors beside it (-1 where there is none).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    pub(crate) length: usize,
    pub(crate) fds: [i32; MOST_FDS],
}

/// Takes a packet that has arrived; does not wait. Length 0 is the end of the connection.
pub(crate) fn receive(fd: i32, buffer: &mut [u8]) -> Result<Packet, Errno> {
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let mut control = [0_u64; CONTROL_WORDS];
    // SAFETY: all zero is a valid msghdr.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    let flags = (libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT).unsigned_abs() as usize;
    // SAFETY: the message and all that it points to live here.
    let length = unsafe { call(libc::SYS_recvmsg, [fd_word(fd), at(&raw mut message), flags, 0, 0, 0]) }?;
    Ok(Packet { length, fds: passed(&control, message.msg_controllen) })
}

/// The descriptors in a control part of `length` bytes. More than [`MOST_FDS`] cannot arrive: there is no room.
fn passed(control: &[u64; CONTROL_WORDS], length: usize) -> [i32; MOST_FDS] {
    let mut fds = [-1; MOST_FDS];
    let bytes = usize::try_from(control[0]).unwrap_or(0).min(length);
    if bytes < 16 || control[1] != pair(libc::SOL_SOCKET, libc::SCM_RIGHTS) {
        return fds;
    }
    let count = (bytes - 16) / 4;
    for (index, fd) in fds.iter_mut().enumerate().take(count) {
        let Some(&word) = control.get(2 + index / 2) else { break };
        let number = if index.is_multiple_of(2) { word & 0xffff_ffff } else { word >> 32 };
        *fd = u32::try_from(number).unwrap_or(u32::MAX).cast_signed();
    }
    fds
}

/// What a descriptor is ready for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ready {
    /// Something can be read or written, as was asked; an end of the connection can be read too.
    Yes,
    /// Not within the time.
    No,
}

/// Waits until `events` (`POLLIN`, `POLLOUT`) are possible, for at most `milliseconds`. A signal ends the wait early.
#[inline(never)]
pub(crate) fn poll(fd: i32, events: i16, milliseconds: u64) -> Result<Ready, Errno> {
    let mut set = libc::pollfd { fd, events, revents: 0 };
    let time = usize::try_from(milliseconds.min(60_000)).unwrap_or(60_000);
    // SAFETY: one pollfd, as is told.
    match unsafe { call(libc::SYS_poll, [at(&raw mut set), 1, time, 0, 0, 0]) } {
        Ok(0) | Err(libc::EINTR) => Ok(Ready::No),
        Ok(_) if set.revents & libc::POLLNVAL != 0 => Err(libc::EBADF),
        Ok(_) => Ok(Ready::Yes),
        Err(error) => Err(error),
    }
}

/// Fresh memory of at least `length` bytes, zeroed; never given back by this library.
pub(crate) fn map_private(length: usize) -> Result<*mut c_void, Errno> {
    map(length, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)
}

/// A file in memory that others see too.
pub(crate) fn map_shared(fd: i32, length: usize, writable: bool) -> Result<*mut c_void, Errno> {
    let protection = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
    map(length, protection, libc::MAP_SHARED, fd)
}

#[inline(never)]
fn map(length: usize, protection: i32, flags: i32, fd: i32) -> Result<*mut c_void, Errno> {
    let arguments =
        [0, length, protection.unsigned_abs() as usize, flags.unsigned_abs() as usize, fd_word(fd), 0];
    // SAFETY: a new mapping at a place of the kernel's choice touches nothing that exists.
    unsafe { call(libc::SYS_mmap, arguments) }.map(ptr::with_exposed_provenance_mut)
}

/// Gives back memory of [`map_private`].
///
/// # Safety
/// Nobody may use it any more.
pub(crate) unsafe fn unmap(start: *mut c_void, length: usize) {
    // SAFETY: the caller's promise.
    let _ = unsafe { call(libc::SYS_munmap, [at(start), length, 0, 0, 0, 0]) };
}

/// Has the kernel hand a forked child zeros in place of this private, anonymous memory.
///
/// # Safety
/// A child must be able to live with the zeros.
pub(crate) unsafe fn wipe_on_fork(start: *const c_void, length: usize) -> Result<(), Errno> {
    let advice = libc::MADV_WIPEONFORK.unsigned_abs() as usize;
    // SAFETY: the caller's promise; this process sees no change.
    unsafe { call(libc::SYS_madvise, [at(start), length, advice, 0, 0, 0]) }.map(|_| ())
}

/// Sleeps while `word` is `expected`, until a wake-up or for no reason at all.
pub(crate) fn futex_wait(word: &core::sync::atomic::AtomicU32, expected: u32) {
    let operation = (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG).unsigned_abs() as usize;
    // SAFETY: the word outlives the call, and there is no time limit (a null pointer).
    let _ = unsafe { call(libc::SYS_futex, [at(word.as_ptr()), operation, expected as usize, 0, 0, 0]) };
}

/// Wakes one sleeper of [`futex_wait`].
pub(crate) fn futex_wake(word: &core::sync::atomic::AtomicU32) {
    let operation = (libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG).unsigned_abs() as usize;
    // SAFETY: only the address of the word is used.
    let _ = unsafe { call(libc::SYS_futex, [at(word.as_ptr()), operation, 1, 0, 0, 0]) };
}

/// This process's id in its own namespace.
pub(crate) fn own_pid() -> u32 {
    // SAFETY: no arguments.
    let pid = unsafe { call(libc::SYS_getpid, [0; 6]) };
    pid.ok().and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0)
}

/// A number that no other living thread of this process has: the address that the C library keeps it by.
#[inline]
pub(crate) fn this_thread() -> usize {
    let address: usize;
    // SAFETY: on x86-64 every C library has the thread's own address at the start of its segment; it is only read.
    unsafe {
        core::arch::asm!("mov {}, fs:[0]", out(reg) address, options(nostack, readonly, preserves_flags));
    }
    address
}

/// Gives the processor to somebody else.
pub(crate) fn yield_now() {
    // SAFETY: no arguments.
    let _ = unsafe { call(libc::SYS_sched_yield, [0; 6]) };
}

/// Stops this process, until somebody lets it go on.
#[cfg(feature = "stop-points")]
pub(crate) fn stop() {
    // SAFETY: numbers only.
    let _ = unsafe {
        let me = call(libc::SYS_getpid, [0; 6]).unwrap_or(0);
        call(libc::SYS_kill, [me, libc::SIGSTOP.unsigned_abs() as usize, 0, 0, 0, 0])
    };
}

/// Sleeps; a signal ends it early.
pub(crate) fn sleep_microseconds(microseconds: u64) {
    sleep_nanoseconds(microseconds * 1000);
}

/// Sleeps; a signal ends it early.
pub(crate) fn sleep_nanoseconds(nanoseconds: u64) {
    let time = libc::timespec {
        tv_sec: i64::try_from(nanoseconds / 1_000_000_000).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(nanoseconds % 1_000_000_000).unwrap_or(0),
    };
    // SAFETY: a time to sleep, and nowhere to write the rest to.
    let _ = unsafe { call(libc::SYS_nanosleep, [at(&raw const time), 0, 0, 0, 0, 0]) };
}

/// Nanoseconds of a clock that never goes back, and that is the same for every process of the machine.
pub(crate) fn nanoseconds() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

/// The same in milliseconds.
#[inline(never)]
pub(crate) fn milliseconds() -> u64 {
    nanoseconds() / 1_000_000
}

/// The same, exact to a few milliseconds only, for a few nanoseconds.
#[inline(never)]
pub(crate) fn coarse_milliseconds() -> u64 {
    clock(libc::CLOCK_MONOTONIC_COARSE) / 1_000_000
}

/// Microseconds of the clock on the wall, since 1970.
pub(crate) fn wall_microseconds() -> u64 {
    clock(libc::CLOCK_REALTIME) / 1000
}

fn clock(which: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a timespec to write to. Through libc, since only it knows the way that needs no system call.
    unsafe { libc::clock_gettime(which, &raw mut time) };
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Writes a line to standard error if that is possible at once; else the line is lost, and nothing else happens:
/// no wait for a slow reader, no SIGPIPE where the reader has gone.
pub(crate) fn say(line: &[u8]) {
    const STANDARD_ERROR: i32 = 2;
    if poll(STANDARD_ERROR, libc::POLLOUT, 0) != Ok(Ready::Yes) {
        return;
    }
    let pipe_signal: u64 = 1 << (libc::SIGPIPE - 1);
    let mut before: u64 = 0;
    let length = size_of::<u64>();
    let block = libc::SIG_BLOCK.unsigned_abs() as usize;
    let restore = libc::SIG_SETMASK.unsigned_abs() as usize;
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: signal sets of the kernel's length, a line of the length told, and a time of zero. The signal is
    // blocked in this thread only, taken away if this write raised it, and then as it was before.
    unsafe {
        let set = [block, at(&raw const pipe_signal), at(&raw mut before), length, 0, 0];
        if call(libc::SYS_rt_sigprocmask, set).is_err() {
            return;
        }
        let written =
            call(libc::SYS_write, [fd_word(STANDARD_ERROR), at(line.as_ptr()), line.len(), 0, 0, 0]);
        if written == Err(libc::EPIPE) && before & pipe_signal == 0 {
            let take = [at(&raw const pipe_signal), 0, at(&raw const now), length, 0, 0];
            let _ = call(libc::SYS_rt_sigtimedwait, take);
        }
        let _ = call(libc::SYS_rt_sigprocmask, [restore, at(&raw const before), 0, length, 0, 0]);
    }
}

unsafe extern "C" {
    /// The process's environment, as libc keeps it.
    pub(crate) static mut environ: *mut *mut c_char;
}

/// A variable of the environment, looked up without libc's lock: a program may hold it in another thread.
pub(crate) fn variable(name: &[u8]) -> Option<&'static CStr> {
    // SAFETY: libc keeps the list well formed; a racing change is the program's own race with every getenv.
    unsafe {
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            let text = CStr::from_ptr(*entry);
            if let Some(rest) = text.to_bytes().strip_prefix(name)
                && rest.first() == Some(&b'=')
            {
                return Some(CStr::from_ptr((*entry).add(name.len() + 1)));
            }
            entry = entry.add(1);
        }
    }
    None
}

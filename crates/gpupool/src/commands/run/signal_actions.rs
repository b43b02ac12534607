//! Thin FFI over signal actions: which signals are ignored, a signal's default action, and ending by a signal as another
//! process did.

use std::process::ExitCode;

use rustix::process::{Resource, Rlimit, Signal};

/// The signals that this process was started to ignore, as a set of bits: bit 0 is signal 1.
pub(super) fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).unwrap_or(0)
}

/// Does a signal's default action to this process. For a stop that may be nothing: the kernel stops no process of an
/// orphaned process group, neither the command nor this one.
pub(super) fn take_default_action(signal: Signal) {
    let number = signal.as_raw();
    // SAFETY: an all-zero action is the default one; the action of before is put back as the kernel gave it.
    unsafe {
        let default: libc::sigaction = std::mem::zeroed();
        let mut before: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(number, &raw const default, &raw mut before) == 0 {
            libc::raise(number);
            libc::sigaction(number, &raw const before, std::ptr::null_mut());
        }
    }
}

/// Ends this process by the signal that ended the command, so that whoever waits sees the same. Gives the shells' exit
/// code for it, should the signal not do it.
pub(super) fn die_by(signal: i32) -> ExitCode {
    // The command's own core dump is the one of interest.
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    // A lower limit is always allowed, and a core dump too many is no reason to do anything else.
    let _ = rustix::process::setrlimit(Resource::Core, none);
    // SAFETY: restoring the default action of a signal and raising it have no conditions.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
    u8::try_from(128 + signal).map_or(ExitCode::FAILURE, ExitCode::from)
}

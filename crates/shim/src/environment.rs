//! One variable of the environment, replaced for the length of one call.
//!
//! `setenv` would move the list under the feet of other threads that read it. Here the old list stays as it is and
//! readers see either it or a copy with the variable replaced; both stay valid for ever.

use core::ffi::{CStr, c_char};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::sys::{self, environ};

/// Runs `call` while the variable `name` has the value that `setting` gives it (`NAME=value`, without a NUL).
///
/// If there is no memory for the copy, nothing is called and the answer is nothing.
pub(crate) fn with_variable<T>(name: &[u8], setting: &[u8], call: impl FnOnce() -> T) -> Option<T> {
    let list = list();
    let before = list.load(Ordering::Acquire);
    let copy = copy_with(before, name, setting)?;
    // Looked up now: if another thread sets a variable meanwhile, libc gives the old list's memory away.
    let entry = find(before, name);
    list.store(copy, Ordering::Release);
    let answer = call();
    // If another thread has set a variable meanwhile, libc has a list of its own, which must not be lost: then only
    // the entry goes back to what it was.
    if list.compare_exchange(copy, before, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        put_back(name, entry);
    }
    Some(answer)
}

fn list() -> &'static AtomicPtr<*mut c_char> {
    // SAFETY: libc's variable is a pointer, aligned as one, and lives as long as the process.
    unsafe { AtomicPtr::from_ptr(&raw mut environ) }
}

fn is_named(entry: *const c_char, name: &[u8]) -> bool {
    // SAFETY: entries of the list are texts that end with NUL.
    let text = unsafe { CStr::from_ptr(entry) }.to_bytes();
    text.strip_prefix(name).is_some_and(|rest| rest.first() == Some(&b'='))
}

/// A copy of the list with the variable replaced or added, in memory that is never given back.
fn copy_with(old: *mut *mut c_char, name: &[u8], setting: &[u8]) -> Option<*mut *mut c_char> {
    let mut count = 0;
    // SAFETY: the list ends with a null pointer.
    while !old.is_null() && unsafe { !(*old.add(count)).is_null() } {
        count += 1;
    }
    let words = (count + 2) * size_of::<*mut c_char>();
    let memory = sys::map_private(words + setting.len() + 1).ok()?;
    let new: *mut *mut c_char = memory.cast();
    // SAFETY: the memory has room for `count + 2` pointers and the setting with its NUL; it is zero, so the list and
    // the text end where they must.
    unsafe {
        let text = memory.byte_add(words).cast::<c_char>();
        ptr::copy_nonoverlapping(setting.as_ptr().cast(), text, setting.len());
        let mut kept = 0;
        for index in 0..count {
            let entry = *old.add(index);
            if !is_named(entry, name) {
                *new.add(kept) = entry;
                kept += 1;
            }
        }
        *new.add(kept) = text;
    }
    Some(new)
}

/// Gives the variable in libc's present list its old entry, or takes it out where it had none.
fn put_back(name: &[u8], old: Option<*mut c_char>) {
    let list = list().load(Ordering::Acquire);
    let mut place = list;
    // SAFETY: lists end with a null pointer; entries move down by one, so the list stays well formed.
    unsafe {
        while !place.is_null() && !(*place).is_null() {
            if !is_named(*place, name) {
                place = place.add(1);
            } else if let Some(entry) = old {
                *place = entry;
                return;
            } else {
                let mut next = place;
                while !(*next).is_null() {
                    *next = *next.add(1);
                    next = next.add(1);
                }
            }
        }
    }
}

fn find(list: *mut *mut c_char, name: &[u8]) -> Option<*mut c_char> {
    let mut place = list;
    // SAFETY: the list ends with a null pointer.
    unsafe {
        while !place.is_null() && !(*place).is_null() {
            if is_named(*place, name) {
                return Some(*place);
            }
            place = place.add(1);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::env;

    use super::*;

    fn seen(name: &CStr) -> Option<String> {
        // SAFETY: an ordinary look-up; tests that change the environment hold the lock below.
        let value = unsafe { libc::getenv(name.as_ptr()) };
        // SAFETY: what getenv finds ends with NUL.
        (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) }.to_string_lossy().into_owned())
    }

    /// One test, since the environment is one.
    #[test]
    fn the_variable_has_the_value_during_the_call_only() {
        let name = b"GPUPOOL_TEST_VARIABLE";
        let c_name = c"GPUPOOL_TEST_VARIABLE";
        // SAFETY: no other test of this process changes or needs this variable.
        unsafe { env::remove_var("GPUPOOL_TEST_VARIABLE") };
        let inside = with_variable(name, b"GPUPOOL_TEST_VARIABLE=a", || seen(c_name));
        assert_eq!(inside, Some(Some("a".to_owned())));
        assert_eq!(seen(c_name), None);

        // SAFETY: as above.
        unsafe { env::set_var("GPUPOOL_TEST_VARIABLE", "mine") };
        let inside = with_variable(name, b"GPUPOOL_TEST_VARIABLE=b", || seen(c_name));
        assert_eq!(inside, Some(Some("b".to_owned())));
        assert_eq!(seen(c_name).as_deref(), Some("mine"));

        // A variable that is set meanwhile survives, and ours still goes back.
        with_variable(name, b"GPUPOOL_TEST_VARIABLE=c", || {
            // SAFETY: as above.
            unsafe { env::set_var("GPUPOOL_TEST_OTHER", "kept") };
        });
        assert_eq!(seen(c"GPUPOOL_TEST_OTHER").as_deref(), Some("kept"));
        assert_eq!(seen(c_name).as_deref(), Some("mine"));
    }
}

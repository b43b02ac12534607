//! Before init, between inits, after the last shutdown. Alone in its process, since the count of inits is the process's.

use std::ffi::CStr;
use std::ptr::null_mut;

use nvidia_ml::calls::identity::nvmlDeviceGetCount_v2;
use nvidia_ml::calls::library::{nvmlErrorString, nvmlInit, nvmlInit_v2, nvmlInitWithFlags, nvmlShutdown};
use nvidia_ml::calls::nvmlEventSetCreate;

const UNINITIALIZED: u32 = 1;
const NOT_SUPPORTED: u32 = 3;
const DRIVER_NOT_LOADED: u32 = 9;

fn count() -> Result<u32, u32> {
    let mut count = 77;
    // SAFETY: the pointer is to our own value.
    match unsafe { nvmlDeviceGetCount_v2(&raw mut count) } {
        0 => Ok(count),
        code => Err(code),
    }
}

#[test]
fn inits_are_counted_and_nothing_is_answered_outside_them() {
    let folder = tempfile::tempdir().unwrap();
    let set = |name: &str, value: &std::ffi::OsStr| {
        // SAFETY: this is the only test of this process, and no other thread of it reads the environment.
        unsafe { std::env::set_var(name, value) };
    };
    set("SIMGPU_CARDS", "3".as_ref());

    assert_eq!(count(), Err(UNINITIALIZED));
    assert_eq!(nvmlEventSetCreate(), UNINITIALIZED);
    assert_eq!(nvmlShutdown(), UNINITIALIZED);
    // SAFETY: the sentence is a static string.
    let sentence = unsafe { CStr::from_ptr(nvmlErrorString(UNINITIALIZED)) };
    assert_eq!(sentence, c"Uninitialized");

    set("SIMGPU_STATE", folder.path().join("no/such/folder/state").as_os_str());
    assert_eq!(nvmlInit_v2(), DRIVER_NOT_LOADED);
    assert_eq!(count(), Err(UNINITIALIZED));

    set("SIMGPU_STATE", folder.path().join("state").as_os_str());
    assert_eq!([nvmlInit(), nvmlInit_v2(), nvmlInitWithFlags(0)], [0, 0, 0]);
    for _ in 0..2 {
        assert_eq!(nvmlShutdown(), 0);
        assert_eq!(count(), Ok(3));
    }
    assert_eq!(nvmlEventSetCreate(), NOT_SUPPORTED);
    // SAFETY: a null pointer is what is tested.
    assert_eq!(unsafe { nvmlDeviceGetCount_v2(null_mut()) }, 2);

    assert_eq!(nvmlShutdown(), 0);
    assert_eq!(count(), Err(UNINITIALIZED));
    assert_eq!(nvmlShutdown(), UNINITIALIZED);

    assert_eq!(nvmlInitWithFlags(1), 0);
    assert_eq!(count(), Ok(3));
}

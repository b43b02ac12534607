//! Faults ordered for a process. Alone in its process, since they are read once.

use nvidia_ml::calls::identity::nvmlDeviceGetCount_v2;
use nvidia_ml::calls::library::{nvmlInit_v2, nvmlSystemGetCudaDriverVersion};
use nvidia_ml::calls::nvmlDeviceGetFanSpeed;

#[test]
fn an_ordered_answer_comes_at_its_call_and_an_older_driver_says_so() {
    let folder = tempfile::tempdir().unwrap();
    for (name, value) in [
        ("SIMGPU_STATE", folder.path().join("state").as_os_str()),
        (
            "SIMGPU_FAULTS",
            "nvmlInit_v2=9@1,nvmlDeviceGetCount_v2=999@2,nvmlDeviceGetFanSpeed=15,driver=12040".as_ref(),
        ),
    ] {
        // SAFETY: this is the only test of this process, and no other thread of it reads the environment.
        unsafe { std::env::set_var(name, value) };
    }
    assert_eq!([nvmlInit_v2(), nvmlInit_v2()], [9, 0]);
    let mut count = 0;
    let mut version = 0;
    // SAFETY: the pointers are to our own values.
    unsafe {
        let counts: Vec<u32> = (0..3).map(|_| nvmlDeviceGetCount_v2(&raw mut count)).collect();
        assert_eq!(counts, [0, 999, 0]);
        assert_eq!(nvmlSystemGetCudaDriverVersion(&raw mut version), 0);
    }
    assert_eq!((count, version), (1, 12040));
    assert_eq!(nvmlDeviceGetFanSpeed(), 15);
}

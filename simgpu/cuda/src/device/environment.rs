//! What environment variables set: faults, the length of kernels, the driver's version.

use std::{env, sync::OnceLock};

use simgpu_device::Faults;

use crate::device::kernel_time::KernelTime;

/// CUDA version that this library implements (1000 × major + 10 × minor).
pub(crate) const VERSION: i32 = 13050;

/// The settings from the environment, read once per process.
#[derive(Debug)]
pub(crate) struct EnvironmentSettings {
    pub(crate) faults: Faults,
    pub(crate) kernel_time: KernelTime,
    /// Something could not be understood: `cuInit` fails, and the reason was printed.
    broken: bool,
}

static SETTINGS: OnceLock<EnvironmentSettings> = OnceLock::new();

/// The settings of this process.
pub(crate) fn settings() -> &'static EnvironmentSettings {
    SETTINGS.get_or_init(|| {
        let mut broken = false;
        let faults = Faults::from_env().unwrap_or_else(|error| {
            broken = true;
            report(&error.to_string());
            Faults::default()
        });
        let text = env::var("SIMGPU_KERNEL_TIME").unwrap_or_default();
        let kernel_time = KernelTime::parse(&text).unwrap_or_else(|part| {
            broken = true;
            report(&format!(
                "SIMGPU_KERNEL_TIME: `{part}` is no time: write 20us, grid:2us, wave:50us or name=5ms"
            ));
            KernelTime::default()
        });
        EnvironmentSettings { faults, kernel_time, broken }
    })
}

/// The CUDA version that `cuDriverGetVersion` answers: [`VERSION`], or an older one where `SIMGPU_FAULTS` sets it.
pub(crate) fn version() -> i32 {
    settings().faults.driver_version().unwrap_or(VERSION)
}

/// A line on standard error: the driver has no other way to give a reason.
pub(crate) fn report(text: &str) {
    eprintln!("simulated libcuda: {text}");
}

impl EnvironmentSettings {
    /// Whether something could not be understood: then `cuInit` fails.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken
    }
}

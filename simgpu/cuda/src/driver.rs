//! What the driver knows of its process: settings, the machine, the visible devices.

use std::{
    env,
    sync::{Mutex, OnceLock},
};

use simgpu_device::{Card, Faults, ForkMark, Machine, Process};

use crate::{
    entry::{early_entry, put},
    error::{CuError, Res},
    kernel_time::KernelTime,
    sync::lock,
    visible,
};

/// CUDA version that this driver speaks (1000 × major + 10 × minor).
pub(crate) const VERSION: i32 = 13050;

/// What the environment orders; read once.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) faults: Faults,
    pub(crate) kernel_time: KernelTime,
    /// Something could not be understood: `cuInit` fails, and the reason was printed.
    broken: bool,
}

/// The process after `cuInit`.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) machine: Machine,
    /// The visible cards; the place is the CUDA ordinal.
    pub(crate) cards: Vec<Card>,
    mark: ForkMark,
    process: OnceLock<Process>,
    joining: Mutex<()>,
}

static SETTINGS: OnceLock<Settings> = OnceLock::new();
static READY: OnceLock<Ready> = OnceLock::new();
static INITIALISING: Mutex<()> = Mutex::new(());

pub(crate) fn settings() -> &'static Settings {
    SETTINGS.get_or_init(|| {
        let mut broken = false;
        let faults = Faults::from_env().unwrap_or_else(|error| {
            broken = true;
            say(&error.to_string());
            Faults::default()
        });
        let text = env::var("SIMGPU_KERNEL_TIME").unwrap_or_default();
        let kernel_time = KernelTime::parse(&text).or_else(|part| {
            broken = true;
            say(&format!(
                "SIMGPU_KERNEL_TIME: `{part}` is no time: write 20us, grid:2us, wave:50us or name=5ms"
            ));
            KernelTime::parse("")
        });
        let kernel_time = kernel_time.unwrap_or_else(|_| unreachable!("an empty setting is understood"));
        Settings { faults, kernel_time, broken }
    })
}

/// The CUDA version that the driver claims: [`VERSION`], or the older one that was ordered.
pub(crate) fn version() -> i32 {
    settings().faults.driver().unwrap_or(VERSION)
}

/// The initialised driver. Fails before `cuInit`, and in a process forked after it.
pub(crate) fn ready() -> Res<&'static Ready> {
    READY.get().filter(|ready| ready.mark.holds()).ok_or(CuError::NOT_INITIALIZED)
}

/// A line on standard error: the driver has no other way to give a reason.
fn say(text: &str) {
    eprintln!("simulated libcuda: {text}");
}

fn initialise() -> Res {
    if settings().broken {
        return Err(CuError::SYSTEM_NOT_READY);
    }
    if READY.get().is_some() {
        return ready().map(|_| ());
    }
    let _guard = lock(&INITIALISING);
    if READY.get().is_some() {
        return Ok(());
    }
    let machine = Machine::open_from_env().map_err(|error| {
        say(&error.to_string());
        CuError::SYSTEM_NOT_READY
    })?;
    let order = env::var("CUDA_DEVICE_ORDER").ok();
    let cards = visible::in_cuda_order(machine.cards().collect(), order.as_deref());
    let cards = visible::visible(cards, env::var("CUDA_VISIBLE_DEVICES").ok().as_deref());
    if cards.is_empty() {
        return Err(CuError::NO_DEVICE);
    }
    let (process, joining) = (OnceLock::new(), Mutex::new(()));
    let _ = READY.set(Ready { machine, cards, mark: ForkMark::here(), process, joining });
    Ok(())
}

impl Ready {
    /// The card with CUDA ordinal `device`.
    pub(crate) fn card(&self, device: i32) -> Res<Card> {
        usize::try_from(device)
            .ok()
            .and_then(|device| self.cards.get(device).copied())
            .ok_or(CuError::INVALID_DEVICE)
    }

    /// The process's place among those that hold memory; taken at its first use.
    pub(crate) fn process(&self) -> Res<Process> {
        if let Some(process) = self.process.get() {
            return Ok(*process);
        }
        let _guard = lock(&self.joining);
        if let Some(process) = self.process.get() {
            return Ok(*process);
        }
        let process = self.machine.join().map_err(|error| {
            say(&error.to_string());
            CuError::OPERATING_SYSTEM
        })?;
        Ok(*self.process.get_or_init(|| process))
    }
}

early_entry! {
    cuInit(flags: u32) {
        if flags != 0 {
            return Err(CuError::INVALID_VALUE);
        }
        initialise()
    }
    cuDriverGetVersion(version: *mut i32) {
        put(version, self::version())
    }
}

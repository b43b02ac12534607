//! What changes from moment to moment: memory, utilisation, power, temperature, clocks.

use simgpu_device::Card;

use super::{card, check_version, entries, values, write};
use crate::layout::{Bar1Memory, Device, Memory, MemoryV2, Temperature, Utilization, version_of};
use crate::return_code::ReturnCode;

/// Over how long the encoder's and decoder's utilisation is said to be measured, in microseconds.
const SAMPLE_PERIOD: u32 = 167_000;

/// The size of the host's window on the card's memory, and how much of it the driver maps, in bytes.
const WINDOW: (u64, u64) = (256 << 20, 1 << 20);

/// `NVML_CLOCK_MEM`, among clocks 0 to 3.
const MEMORY_CLOCK: u32 = 2;

entries! {
    /// Memory.
    fn nvmlDeviceGetMemoryInfo(cards; device: Device, memory: *mut Memory) {
        let card = card(cards, device)?;
        let (total, used) = (card.total_memory(), card.used_memory());
        let info = Memory { total, free: total.saturating_sub(used), used };
        // SAFETY: by this function's own contract.
        unsafe { write(memory, info) }
    }

    /// Memory; the simulated driver reserves none for itself.
    fn nvmlDeviceGetMemoryInfo_v2(cards; device: Device, memory: *mut MemoryV2) {
        let card = card(cards, device)?;
        let (total, used) = (card.total_memory(), card.used_memory());
        let version = version_of::<MemoryV2>(2);
        let info = MemoryV2 { version, total, reserved: 0, free: total.saturating_sub(used), used };
        // SAFETY: by this function's own contract; the version is the first field.
        unsafe { check_version(memory.cast(), version).and_then(|()| write(memory, info)) }
    }

    /// The encoder: idle.
    fn nvmlDeviceGetEncoderUtilization(cards; device: Device, percent: *mut u32, period: *mut u32) {
        card(cards, device)?;
        // SAFETY: by this function's own contract.
        unsafe { write_both(percent, 0, period, SAMPLE_PERIOD) }
    }

    /// The decoder: idle.
    fn nvmlDeviceGetDecoderUtilization(cards; device: Device, percent: *mut u32, period: *mut u32) {
        card(cards, device)?;
        // SAFETY: by this function's own contract.
        unsafe { write_both(percent, 0, period, SAMPLE_PERIOD) }
    }

    /// Degrees Celsius of the card; there is no other sensor.
    fn nvmlDeviceGetTemperature(cards; device: Device, sensor: u32, degrees: *mut u32) {
        let card = card(cards, device)?;
        if sensor != 0 {
            return Err(ReturnCode::InvalidArgument);
        }
        // SAFETY: by this function's own contract.
        unsafe { write(degrees, temperature(&card)) }
    }

    /// Degrees Celsius of the card; there is no other sensor.
    fn nvmlDeviceGetTemperatureV(cards; device: Device, reading: *mut Temperature) {
        let card = card(cards, device)?;
        let version = version_of::<Temperature>(1);
        // SAFETY: by this function's own contract; the version is the first field.
        let sensor = unsafe {
            check_version(reading.cast(), version)?;
            (&raw const (*reading).sensor).read_unaligned()
        };
        if sensor != 0 {
            return Err(ReturnCode::InvalidArgument);
        }
        let degrees = i32::try_from(temperature(&card)).map_err(|_| ReturnCode::Unknown)?;
        // SAFETY: by this function's own contract.
        unsafe { write(reading, Temperature { version, sensor, temperature: degrees }) }
    }

    /// A clock now, in MHz: a simulated card always runs at full speed.
    fn nvmlDeviceGetClockInfo(cards; device: Device, clock: u32, megahertz: *mut u32) {
        // SAFETY: by this function's own contract.
        unsafe { write(megahertz, clock_of(&card(cards, device)?, clock)?) }
    }

    /// A clock at its highest, in MHz.
    fn nvmlDeviceGetMaxClockInfo(cards; device: Device, clock: u32, megahertz: *mut u32) {
        // SAFETY: by this function's own contract.
        unsafe { write(megahertz, clock_of(&card(cards, device)?, clock)?) }
    }

    /// Memory errors of either kind (0 corrected, 1 uncorrected) since the start or ever: none.
    fn nvmlDeviceGetTotalEccErrors(cards; device: Device, kind: u32, counter: u32, errors: *mut u64) {
        card(cards, device)?;
        if kind > 1 || counter > 1 {
            return Err(ReturnCode::InvalidArgument);
        }
        // SAFETY: by this function's own contract.
        unsafe { write(errors, 0) }
    }
}

values! {
    /// Percent of the last sample period in which the card computed, and in which its memory was busy.
    fn nvmlDeviceGetUtilizationRates -> Utilization =
        |card| Ok(utilization(card));
    /// The host's window on the card's memory.
    fn nvmlDeviceGetBAR1MemoryInfo -> Bar1Memory =
        |_| Ok(Bar1Memory { total: WINDOW.0, free: WINDOW.0 - WINDOW.1, used: WINDOW.1 });
    /// Milliwatts now.
    fn nvmlDeviceGetPowerUsage -> u32 = |card| Ok(power(card));
    /// Milliwatts allowed.
    fn nvmlDeviceGetPowerManagementLimit -> u32 = |card| Ok(card.model().power_limit_mw);
    /// Milliwatts allowed, all limits taken together.
    fn nvmlDeviceGetEnforcedPowerLimit -> u32 = |card| Ok(card.model().power_limit_mw);
    /// Milliwatts allowed at the start.
    fn nvmlDeviceGetPowerManagementDefaultLimit -> u32 = |card| Ok(card.model().power_limit_mw);
    /// The performance state: always the highest, 0.
    fn nvmlDeviceGetPerformanceState -> u32 = |_| Ok(0);
    /// The performance state: always the highest, 0.
    fn nvmlDeviceGetPowerState -> u32 = |_| Ok(0);
    /// Whether the driver stays loaded without clients: yes.
    fn nvmlDeviceGetPersistenceMode -> u32 = |_| Ok(1);
    /// Who may compute: anybody, 0.
    fn nvmlDeviceGetComputeMode -> u32 = |_| Ok(0);
    /// Whether a display is attached: no.
    fn nvmlDeviceGetDisplayMode -> u32 = |_| Ok(0);
    /// Whether a display is initialised: no.
    fn nvmlDeviceGetDisplayActive -> u32 = |_| Ok(0);
}

/// # Safety
/// Each pointer is null or can be written.
unsafe fn write_both(first: *mut u32, a: u32, second: *mut u32, b: u32) -> Result<(), ReturnCode> {
    if second.is_null() {
        return Err(ReturnCode::InvalidArgument);
    }
    // SAFETY: the caller's promise is ours.
    unsafe { write(first, a).and_then(|()| write(second, b)) }
}

/// Memory is said to be busy half of the time.
fn utilization(card: &Card) -> Utilization {
    let gpu = card.utilisation();
    Utilization { gpu, memory: gpu / 2 }
}

/// Degrees Celsius: 30 at rest, 70 under full load.
fn temperature(card: &Card) -> u32 {
    30 + card.utilisation() * 40 / 100
}

/// Milliwatts: a seventh of the limit at rest, nine tenths of it under full load.
fn power(card: &Card) -> u32 {
    let limit = card.model().power_limit_mw;
    let (rest, load) = (limit / 7, limit / 10 * 9);
    rest + (load - rest) / 100 * card.utilisation()
}

fn clock_of(card: &Card, clock: u32) -> Result<u32, ReturnCode> {
    match clock {
        MEMORY_CLOCK => Ok(card.model().memory_clock_khz / 1000),
        0..=3 => Ok(card.model().core_clock_khz / 1000),
        _ => Err(ReturnCode::InvalidArgument),
    }
}

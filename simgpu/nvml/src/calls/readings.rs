//! What changes from moment to moment: memory, utilisation, power, temperature, clocks.

use gpupool_nvidia::nvml::{
    NVML_AGGREGATE_ECC, NVML_CLOCK_GRAPHICS, NVML_CLOCK_MEM, NVML_CLOCK_VIDEO, NVML_COMPUTEMODE_DEFAULT,
    NVML_FEATURE_DISABLED, NVML_FEATURE_ENABLED, NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_PSTATE_0,
    NVML_TEMPERATURE_GPU, nvmlBAR1Memory_t, nvmlComputeMode_t, nvmlDevice_t, nvmlEnableState_t, nvmlMemory_t,
    nvmlMemory_v2, nvmlMemory_v2_t, nvmlPstates_t, nvmlTemperature_v1, nvmlTemperature_v1_t,
    nvmlUtilization_t,
};
use simgpu_device::Card;

use super::{card, check_version, entries, values, write};
use crate::return_code::ReturnCode;

/// Over how long the encoder's and decoder's utilisation is said to be measured, in microseconds.
const SAMPLE_PERIOD: u32 = 167_000;

/// The size of the host's window on the card's memory, and how much of it the driver maps, in bytes.
const WINDOW: (u64, u64) = (256 << 20, 1 << 20);

entries! {
    /// The card's memory in bytes; what is used includes what the driver keeps for itself, which is nothing here.
    fn nvmlDeviceGetMemoryInfo(cards; device: nvmlDevice_t, memory: *mut nvmlMemory_t) {
        let card = card(cards, device)?;
        let (total, used) = (card.total_memory(), card.used_memory());
        let info = nvmlMemory_t { total, free: total.saturating_sub(used), used };
        // SAFETY: by this function's own contract.
        unsafe { write(memory, info) }
    }

    /// The card's memory in bytes; the simulated driver keeps none for itself.
    fn nvmlDeviceGetMemoryInfo_v2(cards; device: nvmlDevice_t, memory: *mut nvmlMemory_v2_t) {
        let card = card(cards, device)?;
        let (total, used) = (card.total_memory(), card.used_memory());
        let version = nvmlMemory_v2;
        let info = nvmlMemory_v2_t { version, total, reserved: 0, free: total.saturating_sub(used), used };
        // SAFETY: by this function's own contract; the version is the first field.
        unsafe { check_version(memory.cast(), version).and_then(|()| write(memory, info)) }
    }

    /// The encoder: idle.
    fn nvmlDeviceGetEncoderUtilization(cards; device: nvmlDevice_t, percent: *mut u32, period: *mut u32) {
        card(cards, device)?;
        // SAFETY: by this function's own contract.
        unsafe { write_both(percent, 0, period, SAMPLE_PERIOD) }
    }

    /// The decoder: idle.
    fn nvmlDeviceGetDecoderUtilization(cards; device: nvmlDevice_t, percent: *mut u32, period: *mut u32) {
        card(cards, device)?;
        // SAFETY: by this function's own contract.
        unsafe { write_both(percent, 0, period, SAMPLE_PERIOD) }
    }

    /// Degrees Celsius of the card; there is no other sensor.
    fn nvmlDeviceGetTemperature(cards; device: nvmlDevice_t, sensor: u32, degrees: *mut u32) {
        let card = card(cards, device)?;
        if sensor != NVML_TEMPERATURE_GPU {
            return Err(ReturnCode::InvalidArgument);
        }
        // SAFETY: by this function's own contract.
        unsafe { write(degrees, temperature(&card)) }
    }

    /// Degrees Celsius of the card; there is no other sensor.
    fn nvmlDeviceGetTemperatureV(cards; device: nvmlDevice_t, reading: *mut nvmlTemperature_v1_t) {
        let card = card(cards, device)?;
        let version = nvmlTemperature_v1;
        // SAFETY: by this function's own contract; the version is the first field.
        let sensor = unsafe {
            check_version(reading.cast(), version)?;
            (&raw const (*reading).sensorType).read_unaligned()
        };
        if sensor != NVML_TEMPERATURE_GPU {
            return Err(ReturnCode::InvalidArgument);
        }
        let degrees = i32::try_from(temperature(&card)).map_err(|_| ReturnCode::Unknown)?;
        // SAFETY: by this function's own contract.
        unsafe { write(reading, nvmlTemperature_v1_t { version, sensorType: sensor, temperature: degrees }) }
    }

    /// A clock now, in MHz: a simulated card always runs at full speed.
    fn nvmlDeviceGetClockInfo(cards; device: nvmlDevice_t, clock: u32, megahertz: *mut u32) {
        // SAFETY: by this function's own contract.
        unsafe { write(megahertz, clock_of(&card(cards, device)?, clock)?) }
    }

    /// A clock at its highest, in MHz.
    fn nvmlDeviceGetMaxClockInfo(cards; device: nvmlDevice_t, clock: u32, megahertz: *mut u32) {
        // SAFETY: by this function's own contract.
        unsafe { write(megahertz, clock_of(&card(cards, device)?, clock)?) }
    }

    /// Memory errors of either kind, corrected or not, since the start or ever: none.
    fn nvmlDeviceGetTotalEccErrors(cards; device: nvmlDevice_t, kind: u32, counter: u32, errors: *mut u64) {
        card(cards, device)?;
        if kind > NVML_MEMORY_ERROR_TYPE_UNCORRECTED || counter > NVML_AGGREGATE_ECC {
            return Err(ReturnCode::InvalidArgument);
        }
        // SAFETY: by this function's own contract.
        unsafe { write(errors, 0) }
    }
}

values! {
    /// Percent of the last sample period in which the card computed, and in which its memory was busy.
    fn nvmlDeviceGetUtilizationRates -> nvmlUtilization_t =
        |card| Ok(utilization(card));
    /// The host's window on the card's memory.
    fn nvmlDeviceGetBAR1MemoryInfo -> nvmlBAR1Memory_t =
        |_| Ok(nvmlBAR1Memory_t { bar1Total: WINDOW.0, bar1Free: WINDOW.0 - WINDOW.1, bar1Used: WINDOW.1 });
    /// Milliwatts now.
    fn nvmlDeviceGetPowerUsage -> u32 = |card| Ok(power(card));
    /// Milliwatts allowed.
    fn nvmlDeviceGetPowerManagementLimit -> u32 = |card| Ok(card.model().power_limit_mw);
    /// Milliwatts allowed, all limits taken together.
    fn nvmlDeviceGetEnforcedPowerLimit -> u32 = |card| Ok(card.model().power_limit_mw);
    /// Milliwatts allowed at the start.
    fn nvmlDeviceGetPowerManagementDefaultLimit -> u32 = |card| Ok(card.model().power_limit_mw);
    /// The performance state: always the highest.
    fn nvmlDeviceGetPerformanceState -> nvmlPstates_t = |_| Ok(NVML_PSTATE_0);
    /// The performance state: always the highest.
    fn nvmlDeviceGetPowerState -> nvmlPstates_t = |_| Ok(NVML_PSTATE_0);
    /// Whether the driver stays loaded without clients: yes.
    fn nvmlDeviceGetPersistenceMode -> nvmlEnableState_t = |_| Ok(NVML_FEATURE_ENABLED);
    /// Who may compute: anybody.
    fn nvmlDeviceGetComputeMode -> nvmlComputeMode_t = |_| Ok(NVML_COMPUTEMODE_DEFAULT);
    /// Whether a display is attached: no.
    fn nvmlDeviceGetDisplayMode -> nvmlEnableState_t = |_| Ok(NVML_FEATURE_DISABLED);
    /// Whether a display is initialised: no.
    fn nvmlDeviceGetDisplayActive -> nvmlEnableState_t = |_| Ok(NVML_FEATURE_DISABLED);
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
fn utilization(card: &Card) -> nvmlUtilization_t {
    let gpu = card.utilisation();
    nvmlUtilization_t { gpu, memory: gpu / 2 }
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
        NVML_CLOCK_MEM => Ok(card.model().memory_clock_khz / 1000),
        NVML_CLOCK_GRAPHICS..=NVML_CLOCK_VIDEO => Ok(card.model().core_clock_khz / 1000),
        _ => Err(ReturnCode::InvalidArgument),
    }
}

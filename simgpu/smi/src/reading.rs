//! What is read of a card and its processes through NVML, once, for table and queries alike.

use nvml_wrapper::enum_wrappers::device::{Clock, EccCounter, MemoryError, TemperatureSensor};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

/// The driver, as NVML names it.
#[derive(Debug, Clone)]
pub(crate) struct DriverVersions {
    pub version: String,
    /// Such as 13.5.
    pub cuda_version: String,
}

/// One card at one moment; `None` where the card has no such thing.
#[derive(Debug, Clone)]
pub(crate) struct CardReading {
    pub index: u32,
    pub name: String,
    pub uuid: String,
    pub serial: Option<String>,
    pub bus_id: String,
    pub pci_domain: u32,
    pub pci_bus: u32,
    pub pci_device: u32,
    pub pci_device_id: u32,
    pub pci_subsystem_id: Option<u32>,
    pub compute_capability: Option<(i32, i32)>,
    /// Bytes.
    pub memory_total: u64,
    /// Bytes that programs hold.
    pub memory_used: u64,
    /// Bytes.
    pub memory_free: u64,
    /// Bytes that the driver keeps.
    pub memory_reserved: u64,
    /// Percent.
    pub utilization_gpu: Option<u32>,
    /// Percent.
    pub utilization_memory: Option<u32>,
    /// Degrees Celsius.
    pub temperature: Option<u32>,
    /// Milliwatts.
    pub power_draw: Option<u32>,
    /// Milliwatts.
    pub power_limit: Option<u32>,
    /// 0 to 15.
    pub performance_state: Option<u32>,
    pub persistence: Option<bool>,
    pub display_active: Option<bool>,
    pub ecc_errors: Option<u64>,
    pub fan_speed: Option<u32>,
    pub mig: Option<bool>,
    pub compute_mode: Option<&'static str>,
    /// MHz.
    pub clock_sm: Option<u32>,
    /// MHz.
    pub clock_memory: Option<u32>,
    /// MHz.
    pub clock_sm_max: Option<u32>,
    /// MHz.
    pub clock_memory_max: Option<u32>,
    pub processes: Vec<ProcessReading>,
}

/// One program on one card.
#[derive(Debug, Clone)]
pub(crate) struct ProcessReading {
    pub pid: u32,
    /// Nothing when the process cannot be seen from here.
    pub name: Option<String>,
    /// Bytes.
    pub used_memory: Option<u64>,
}

impl DriverVersions {
    pub(crate) fn read(nvml: &Nvml) -> Result<Self, NvmlError> {
        let cuda = nvml.sys_cuda_driver_version()?;
        Ok(Self {
            version: nvml.sys_driver_version()?,
            cuda_version: format!(
                "{}.{}",
                nvml_wrapper::cuda_driver_version_major(cuda),
                nvml_wrapper::cuda_driver_version_minor(cuda)
            ),
        })
    }
}

impl CardReading {
    /// Reads everything; what the card lacks is nothing, a lost card is an error.
    pub(crate) fn take(nvml: &Nvml, device: &Device<'_>) -> Result<Self, NvmlError> {
        let memory = device.memory_info()?;
        let pci = device.pci_info()?;
        let utilization = maybe(device.utilization_rates())?;
        let capability = maybe(device.cuda_compute_capability())?;
        Ok(Self {
            index: device.index()?,
            name: device.name()?,
            uuid: device.uuid()?,
            serial: maybe(device.serial())?,
            bus_id: pci.bus_id,
            pci_domain: pci.domain,
            pci_bus: pci.bus,
            pci_device: pci.device,
            pci_device_id: pci.pci_device_id,
            pci_subsystem_id: pci.pci_sub_system_id,
            compute_capability: capability.map(|capability| (capability.major, capability.minor)),
            memory_total: memory.total,
            memory_used: memory.used,
            memory_free: memory.free,
            memory_reserved: memory.reserved,
            utilization_gpu: utilization.as_ref().map(|utilization| utilization.gpu),
            utilization_memory: utilization.map(|utilization| utilization.memory),
            temperature: maybe(device.temperature(TemperatureSensor::Gpu))?,
            power_draw: maybe(device.power_usage())?,
            power_limit: maybe(device.enforced_power_limit())?,
            performance_state: maybe(device.performance_state())?.map(|state| state.as_c()),
            persistence: maybe(device.is_in_persistent_mode())?,
            display_active: maybe(device.is_display_active())?,
            ecc_errors: maybe(device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile))?,
            fan_speed: maybe(device.fan_speed(0))?,
            mig: maybe(device.mig_mode())?.map(|mode| mode.current != 0),
            compute_mode: maybe(device.compute_mode())?.map(compute_mode),
            clock_sm: maybe(device.clock_info(Clock::SM))?,
            clock_memory: maybe(device.clock_info(Clock::Memory))?,
            clock_sm_max: maybe(device.max_clock_info(Clock::SM))?,
            clock_memory_max: maybe(device.max_clock_info(Clock::Memory))?,
            processes: processes(nvml, device)?,
        })
    }
}

fn processes(nvml: &Nvml, device: &Device<'_>) -> Result<Vec<ProcessReading>, NvmlError> {
    let mut processes: Vec<ProcessReading> = maybe(device.running_compute_processes())?
        .unwrap_or_default()
        .into_iter()
        .map(|process| ProcessReading {
            pid: process.pid,
            name: nvml.sys_process_name(process.pid, 256).ok().filter(|name| !name.is_empty()),
            used_memory: match process.used_gpu_memory {
                UsedGpuMemory::Used(bytes) => Some(bytes),
                UsedGpuMemory::Unavailable => None,
            },
        })
        .collect();
    processes.sort_by_key(|process| process.pid);
    Ok(processes)
}

/// What a card does not support is no error.
fn maybe<T>(answer: Result<T, NvmlError>) -> Result<Option<T>, NvmlError> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(NvmlError::NotSupported | NvmlError::FailedToLoadSymbol(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn compute_mode(mode: nvml_wrapper::enum_wrappers::device::ComputeMode) -> &'static str {
    use nvml_wrapper::enum_wrappers::device::ComputeMode::{
        Default, ExclusiveProcess, ExclusiveThread, Prohibited,
    };
    match mode {
        Default => "Default",
        ExclusiveThread => "Exclusive_Thread",
        Prohibited => "Prohibited",
        ExclusiveProcess => "Exclusive_Process",
    }
}

#[cfg(test)]
pub(crate) fn sample() -> CardReading {
    CardReading {
        index: 1,
        name: "NVIDIA A100-SXM4-80GB (simulated)".to_owned(),
        uuid: "GPU-01234567-89ab-cdef-0001-020304050607".to_owned(),
        serial: Some("1320021012345".to_owned()),
        bus_id: "00000000:3B:00.0".to_owned(),
        pci_domain: 0,
        pci_bus: 0x3b,
        pci_device: 0,
        pci_device_id: 0x20b2_10de,
        pci_subsystem_id: Some(0x1463_10de),
        compute_capability: Some((8, 0)),
        memory_total: 81920 << 20,
        memory_used: 1300 << 20,
        memory_free: 80000 << 20,
        memory_reserved: 620 << 20,
        utilization_gpu: Some(37),
        utilization_memory: Some(18),
        temperature: Some(44),
        power_draw: Some(163_456),
        power_limit: Some(400_000),
        performance_state: Some(0),
        persistence: Some(true),
        display_active: Some(false),
        ecc_errors: Some(0),
        fan_speed: None,
        mig: None,
        compute_mode: Some("Default"),
        clock_sm: Some(1410),
        clock_memory: Some(1593),
        clock_sm_max: Some(1410),
        clock_memory_max: Some(1593),
        processes: vec![
            ProcessReading { pid: 4321, name: Some("python3".to_owned()), used_memory: Some(1044 << 20) },
            ProcessReading { pid: 4_190_001, name: None, used_memory: None },
        ],
    }
}

//! NVML's structures, byte for byte as NVML 13.5 lays them out on x86-64 and aarch64.

/// A card's handle: opaque to callers.
pub type Device = *mut core::ffi::c_void;

/// `nvmlMemory_t`: bytes. `used` includes what the driver keeps for itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Memory {
    /// Installed memory.
    pub total: u64,
    /// Neither reserved nor allocated.
    pub free: u64,
    /// Reserved or allocated.
    pub used: u64,
}

/// `nvmlMemory_v2_t`: bytes. `used` leaves out what the driver keeps for itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct MemoryV2 {
    /// Size and version, given by the caller.
    pub version: u32,
    /// Installed memory.
    pub total: u64,
    /// Kept by the driver.
    pub reserved: u64,
    /// Neither reserved nor allocated.
    pub free: u64,
    /// Allocated.
    pub used: u64,
}

/// `nvmlBAR1Memory_t`: bytes of the window through which the host sees the card's memory.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct Bar1Memory {
    /// Size of the window.
    pub total: u64,
    /// Not mapped.
    pub free: u64,
    /// Mapped.
    pub used: u64,
}

/// `nvmlUtilization_t`: percent over the last sample period.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Utilization {
    /// Time during which a kernel ran.
    pub gpu: u32,
    /// Time during which memory was read or written.
    pub memory: u32,
}

/// The first nine words of `nvmlPciInfo_t`: all that callers of the old functions are sure to have room for.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct PciInfoHead {
    /// `domain:bus:device.function` with a four-digit domain.
    pub bus_id_legacy: [u8; 16],
    /// PCI domain.
    pub domain: u32,
    /// PCI bus.
    pub bus: u32,
    /// PCI device.
    pub device: u32,
    /// Device id (high half) and vendor id (low half).
    pub device_id: u32,
    /// Subsystem id.
    pub subsystem_id: u32,
}

/// `nvmlPciInfo_t`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct PciInfo {
    /// What the old layout has as well.
    pub head: PciInfoHead,
    /// `domain:bus:device.function` with an eight-digit domain.
    pub bus_id: [u8; 32],
}

/// `nvmlPciInfoExt_v1_t`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct PciInfoExt {
    /// Size and version, given by the caller.
    pub version: u32,
    /// PCI domain.
    pub domain: u32,
    /// PCI bus.
    pub bus: u32,
    /// PCI device.
    pub device: u32,
    /// Device id (high half) and vendor id (low half).
    pub device_id: u32,
    /// Subsystem id.
    pub subsystem_id: u32,
    /// PCI class: 3, display controller.
    pub base_class: u32,
    /// PCI subclass: 2, a controller without VGA.
    pub sub_class: u32,
    /// `domain:bus:device.function` with an eight-digit domain.
    pub bus_id: [u8; 32],
}

/// `nvmlTemperature_v1_t`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct Temperature {
    /// Size and version, given by the caller.
    pub version: u32,
    /// Which sensor, given by the caller; 0 is the card itself.
    pub sensor: u32,
    /// Degrees Celsius.
    pub temperature: i32,
}

/// `nvmlProcessInfo_v1_t`: what the unversioned list functions give.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ProcessInfoV1 {
    /// In the caller's namespace.
    pub pid: u32,
    /// Bytes.
    pub used_memory: u64,
}

/// `nvmlProcessInfo_t`: what the list functions `_v2` and `_v3` give.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ProcessInfo {
    /// In the caller's namespace.
    pub pid: u32,
    /// Bytes.
    pub used_memory: u64,
    /// `u32::MAX`: no multi-instance mode.
    pub gpu_instance: u32,
    /// `u32::MAX`: no multi-instance mode.
    pub compute_instance: u32,
}

/// `nvmlProcessUtilizationSample_t`: percent over the last sample period.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ProcessUtilization {
    /// In the caller's namespace.
    pub pid: u32,
    /// When it was measured: microseconds since 1970.
    pub time_stamp: u64,
    /// Time during which a kernel of the process ran.
    pub multiprocessors: u32,
    /// Time during which it read or wrote memory.
    pub memory: u32,
    /// Encoder.
    pub encoder: u32,
    /// Decoder.
    pub decoder: u32,
}

/// `nvmlProcessUtilizationInfo_v1_t`: percent since the moment that was asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ProcessUtilizationInfo {
    /// When it was measured: microseconds since 1970.
    pub time_stamp: u64,
    /// In the caller's namespace.
    pub pid: u32,
    /// Time during which a kernel of the process ran.
    pub multiprocessors: u32,
    /// Time during which it read or wrote memory.
    pub memory: u32,
    /// Encoder.
    pub encoder: u32,
    /// Decoder.
    pub decoder: u32,
    /// JPEG engine.
    pub jpeg: u32,
    /// Optical flow.
    pub optical_flow: u32,
}

/// `nvmlProcessesUtilizationInfo_v1_t`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct ProcessesUtilization {
    /// Size and version, given by the caller.
    pub version: u32,
    /// Room in the list, then entries.
    pub count: u32,
    /// From when on: microseconds since 1970.
    pub last_seen: u64,
    /// The caller's list.
    pub list: *mut ProcessUtilizationInfo,
}

/// `nvmlProcessDetail_v1_t`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ProcessDetail {
    /// In the caller's namespace.
    pub pid: u32,
    /// Bytes.
    pub used_memory: u64,
    /// `u32::MAX`: no multi-instance mode.
    pub gpu_instance: u32,
    /// `u32::MAX`: no multi-instance mode.
    pub compute_instance: u32,
    /// Bytes of memory protected from the host: none.
    pub protected_memory: u64,
}

/// `nvmlProcessDetailList_v1_t`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct ProcessDetails {
    /// Size and version, given by the caller.
    pub version: u32,
    /// `nvmlProcessMode_t`, given by the caller.
    pub mode: u32,
    /// Room in the list, then entries.
    pub count: u32,
    /// The caller's list.
    pub list: *mut ProcessDetail,
}

/// The version field of a structure: its size, and its version in the top byte.
pub const fn version_of<T>(version: u32) -> u32 {
    #[allow(clippy::cast_possible_truncation, reason = "no structure comes near 16 MiB")]
    let size = size_of::<T>() as u32;
    size | version << 24
}

const _: () = {
    assert!(size_of::<Memory>() == 24);
    assert!(version_of::<MemoryV2>(2) == 0x0200_0028);
    assert!(size_of::<Bar1Memory>() == 24);
    assert!(size_of::<Utilization>() == 8);
    assert!(size_of::<PciInfoHead>() == 36);
    assert!(size_of::<PciInfo>() == 68);
    assert!(size_of::<PciInfoExt>() == 64);
    assert!(size_of::<Temperature>() == 12);
    assert!(size_of::<ProcessInfoV1>() == 16);
    assert!(size_of::<ProcessInfo>() == 24);
    assert!(size_of::<ProcessUtilization>() == 32);
    assert!(size_of::<ProcessUtilizationInfo>() == 40);
    assert!(size_of::<ProcessesUtilization>() == 24);
    assert!(size_of::<ProcessDetail>() == 32);
    assert!(size_of::<ProcessDetails>() == 24);
};

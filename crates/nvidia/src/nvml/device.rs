//! Devices: what they are, readings, memory.

use crate::declare::{constants, structures};

constants! {
    // Bytes of a bus address with its zero byte: now, and in the old form.
    usize {
        NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE = 32,
        NVML_DEVICE_PCI_BUS_ID_BUFFER_V2_SIZE = 16,
    }

    // Sizes of structures with their versions, as the first field of each has it.
    u32 {
        nvmlMemory_v2 = 0x0200_0028,
        nvmlPciInfoExt_v1 = 0x0100_0040,
        nvmlTemperature_v1 = 0x0100_000C,
    }

    // `nvmlDeviceArchitecture_t`: generations of chips.
    u32 {
        NVML_DEVICE_ARCH_KEPLER = 2,
        NVML_DEVICE_ARCH_MAXWELL = 3,
        NVML_DEVICE_ARCH_PASCAL = 4,
        NVML_DEVICE_ARCH_VOLTA = 5,
        NVML_DEVICE_ARCH_TURING = 6,
        NVML_DEVICE_ARCH_AMPERE = 7,
        NVML_DEVICE_ARCH_ADA = 8,
        NVML_DEVICE_ARCH_HOPPER = 9,
        NVML_DEVICE_ARCH_BLACKWELL = 10,
        NVML_DEVICE_ARCH_UNKNOWN = 0xFFFF_FFFF,
    }

    /// What a card is sold as.
    enum nvmlBrandType_t = u32 {
        NVML_BRAND_UNKNOWN = 0,
        NVML_BRAND_QUADRO = 1,
        NVML_BRAND_TESLA = 2,
        NVML_BRAND_NVS = 3,
        NVML_BRAND_GRID = 4,
        NVML_BRAND_GEFORCE = 5,
        NVML_BRAND_TITAN = 6,
        NVML_BRAND_NVIDIA_VAPPS = 7,
        NVML_BRAND_NVIDIA_VPC = 8,
        NVML_BRAND_NVIDIA_VCS = 9,
        NVML_BRAND_NVIDIA_VWS = 10,
        NVML_BRAND_NVIDIA_CLOUD_GAMING = 11,
        NVML_BRAND_QUADRO_RTX = 12,
        NVML_BRAND_NVIDIA_RTX = 13,
        NVML_BRAND_NVIDIA = 14,
        NVML_BRAND_GEFORCE_RTX = 15,
        NVML_BRAND_TITAN_RTX = 16,
        NVML_BRAND_NVIDIA_DLA = 17 since 13,
        NVML_BRAND_NVIDIA_NPU = 19 since 13,
        NVML_BRAND_NVIDIA_VGAMEDEV = 18 since 13,
    }

    /// How near two cards are.
    enum nvmlGpuTopologyLevel_t = u32 {
        NVML_TOPOLOGY_INTERNAL = 0,
        NVML_TOPOLOGY_SINGLE = 10,
        NVML_TOPOLOGY_MULTIPLE = 20,
        NVML_TOPOLOGY_HOSTBRIDGE = 30,
        NVML_TOPOLOGY_NODE = 40,
        NVML_TOPOLOGY_SYSTEM = 50,
    }

    /// Which clock is meant.
    enum nvmlClockType_t = u32 {
        NVML_CLOCK_GRAPHICS = 0,
        NVML_CLOCK_SM = 1,
        NVML_CLOCK_MEM = 2,
        NVML_CLOCK_VIDEO = 3,
    }

    /// Which sensor is meant.
    enum nvmlTemperatureSensors_t = u32 {
        NVML_TEMPERATURE_GPU = 0,
    }

    /// Which errors of memory are counted.
    enum nvmlMemoryErrorType_t = u32 {
        NVML_MEMORY_ERROR_TYPE_CORRECTED = 0,
        NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1,
    }

    /// Since when they are counted: since the driver was loaded, or ever.
    enum nvmlEccCounterType_t = u32 {
        NVML_VOLATILE_ECC = 0,
        NVML_AGGREGATE_ECC = 1,
    }

    /// Whether something is switched on.
    enum nvmlEnableState_t = u32 {
        NVML_FEATURE_DISABLED = 0,
        NVML_FEATURE_ENABLED = 1,
    }

    /// How many processes may compute on a card.
    enum nvmlComputeMode_t = u32 {
        NVML_COMPUTEMODE_DEFAULT = 0,
        NVML_COMPUTEMODE_EXCLUSIVE_THREAD = 1,
        NVML_COMPUTEMODE_PROHIBITED = 2,
        NVML_COMPUTEMODE_EXCLUSIVE_PROCESS = 3,
    }

    /// How hard a card works: 0 is the fastest.
    enum nvmlPstates_t = u32 {
        NVML_PSTATE_0 = 0,
        NVML_PSTATE_1 = 1,
        NVML_PSTATE_2 = 2,
        NVML_PSTATE_3 = 3,
        NVML_PSTATE_4 = 4,
        NVML_PSTATE_5 = 5,
        NVML_PSTATE_6 = 6,
        NVML_PSTATE_7 = 7,
        NVML_PSTATE_8 = 8,
        NVML_PSTATE_9 = 9,
        NVML_PSTATE_10 = 10,
        NVML_PSTATE_11 = 11,
        NVML_PSTATE_12 = 12,
        NVML_PSTATE_13 = 13,
        NVML_PSTATE_14 = 14,
        NVML_PSTATE_15 = 15,
        NVML_PSTATE_UNKNOWN = 32,
    }
}

structures! {
    /// Bytes. `used` includes what the driver keeps for itself.
    #[derive(Default, PartialEq, Eq)]
    struct nvmlMemory_t {
        total: u64,
        free: u64,
        used: u64,
    }

    /// Bytes. `used` leaves out what the driver keeps for itself.
    #[derive(Default, PartialEq, Eq)]
    struct nvmlMemory_v2_t {
        /// [`nvmlMemory_v2`], given by the caller.
        version: u32,
        total: u64,
        reserved: u64,
        free: u64,
        used: u64,
    }

    /// The window through which the host sees the card's memory. Bytes.
    #[derive(Default, PartialEq, Eq)]
    struct nvmlBAR1Memory_t {
        bar1Total: u64,
        bar1Free: u64,
        bar1Used: u64,
    }

    /// Percent over the last sample period.
    #[derive(Default, PartialEq, Eq)]
    struct nvmlUtilization_t {
        /// Time during which a kernel ran.
        gpu: u32,
        /// Time during which memory was read or written.
        memory: u32,
    }

    /// Where a card is plugged in. All but the last field is what callers of old functions are sure to have room for.
    #[derive(Default, PartialEq, Eq)]
    struct nvmlPciInfo_t {
        /// `domain:bus:device.function` with a four-digit domain.
        busIdLegacy: [u8; NVML_DEVICE_PCI_BUS_ID_BUFFER_V2_SIZE],
        domain: u32,
        bus: u32,
        device: u32,
        /// Device id (high half) and vendor id (low half).
        pciDeviceId: u32,
        pciSubSystemId: u32,
        /// `domain:bus:device.function` with an eight-digit domain.
        busId: [u8; NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE],
    }

    /// Where a card is plugged in, with its class.
    #[derive(Default, PartialEq, Eq)]
    struct nvmlPciInfoExt_v1_t {
        /// [`nvmlPciInfoExt_v1`], given by the caller.
        version: u32,
        domain: u32,
        bus: u32,
        device: u32,
        /// Device id (high half) and vendor id (low half).
        pciDeviceId: u32,
        pciSubSystemId: u32,
        baseClass: u32,
        subClass: u32,
        /// `domain:bus:device.function` with an eight-digit domain.
        busId: [u8; NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE],
    }

    /// A reading of a sensor.
    #[derive(Default, PartialEq, Eq)]
    struct nvmlTemperature_v1_t {
        /// [`nvmlTemperature_v1`], given by the caller.
        version: u32,
        /// Given by the caller.
        sensorType: nvmlTemperatureSensors_t,
        /// Degrees Celsius.
        temperature: i32,
    }
}

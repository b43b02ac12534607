//! What cards there are to choose from.

/// The fixed properties of one kind of card. Figures follow the vendor's public data sheets; the name says that the
/// card is simulated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    /// What `SIMGPU_CARDS` calls it.
    pub key: &'static str,
    /// What programs and tools are told, at most 95 bytes.
    pub name: &'static str,
    /// Memory of the card in bytes.
    pub memory: u64,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// FP32 lanes of one multiprocessor.
    pub cores_per_multiprocessor: u32,
    /// Compute capability, major and minor.
    pub compute: (u32, u32),
    /// Highest core clock in kHz.
    pub core_clock_khz: u32,
    /// Highest memory clock in kHz.
    pub memory_clock_khz: u32,
    /// Width of the memory bus in bits.
    pub bus_bits: u32,
    /// Second-level cache in bytes.
    pub l2_bytes: u32,
    /// Shared memory of one multiprocessor in bytes.
    pub shared_per_multiprocessor: u32,
    /// Most shared memory that one block may ask for, in bytes.
    pub shared_per_block_optin: u32,
    /// Most resident threads of one multiprocessor.
    pub threads_per_multiprocessor: u32,
    /// Most resident blocks of one multiprocessor.
    pub blocks_per_multiprocessor: u32,
    /// Asynchronous copy engines.
    pub copy_engines: u32,
    /// Power limit in milliwatts.
    pub power_limit_mw: u32,
    /// Device memory taken by one context, in bytes. A figure of ours until a real driver has been measured.
    pub context_memory: u64,
    /// PCI device and vendor id as NVML reports them (device in the upper half).
    pub pci_device_id: u32,
}

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// The A100 is the default; every other entry differs from it as the data sheet says.
const A100: Model = Model {
    key: "A100-80GB",
    name: "NVIDIA A100-SXM4-80GB (simulated)",
    memory: 80 * GIB,
    multiprocessors: 108,
    cores_per_multiprocessor: 64,
    compute: (8, 0),
    core_clock_khz: 1_410_000,
    memory_clock_khz: 1_593_000,
    bus_bits: 5120,
    l2_bytes: 40 << 20,
    shared_per_multiprocessor: 164 << 10,
    shared_per_block_optin: 163 << 10,
    threads_per_multiprocessor: 2048,
    blocks_per_multiprocessor: 32,
    copy_engines: 3,
    power_limit_mw: 400_000,
    context_memory: 256 * MIB,
    pci_device_id: 0x20B2_10DE,
};

/// Every model that `SIMGPU_CARDS` may name; the first is the default.
pub const MODELS: &[Model] = &[
    A100,
    Model {
        key: "A100-40GB",
        name: "NVIDIA A100-SXM4-40GB (simulated)",
        memory: 40 * GIB,
        memory_clock_khz: 1_215_000,
        pci_device_id: 0x20B0_10DE,
        ..A100
    },
    Model {
        key: "H100-80GB",
        name: "NVIDIA H100 80GB HBM3 (simulated)",
        multiprocessors: 132,
        cores_per_multiprocessor: 128,
        compute: (9, 0),
        core_clock_khz: 1_980_000,
        memory_clock_khz: 2_619_000,
        l2_bytes: 50 << 20,
        shared_per_multiprocessor: 228 << 10,
        shared_per_block_optin: 227 << 10,
        power_limit_mw: 700_000,
        pci_device_id: 0x2330_10DE,
        ..A100
    },
    Model {
        key: "L4",
        name: "NVIDIA L4 (simulated)",
        memory: 24 * GIB,
        multiprocessors: 58,
        cores_per_multiprocessor: 128,
        compute: (8, 9),
        core_clock_khz: 2_040_000,
        memory_clock_khz: 6_251_000,
        bus_bits: 192,
        l2_bytes: 48 << 20,
        shared_per_multiprocessor: 100 << 10,
        shared_per_block_optin: 99 << 10,
        threads_per_multiprocessor: 1536,
        blocks_per_multiprocessor: 24,
        copy_engines: 2,
        power_limit_mw: 72_000,
        pci_device_id: 0x27B8_10DE,
        ..A100
    },
    Model {
        key: "T4",
        name: "Tesla T4 (simulated)",
        memory: 16 * GIB,
        multiprocessors: 40,
        compute: (7, 5),
        core_clock_khz: 1_590_000,
        memory_clock_khz: 5_001_000,
        bus_bits: 256,
        l2_bytes: 4 << 20,
        shared_per_multiprocessor: 64 << 10,
        shared_per_block_optin: 64 << 10,
        threads_per_multiprocessor: 1024,
        blocks_per_multiprocessor: 16,
        copy_engines: 3,
        power_limit_mw: 70_000,
        context_memory: 128 * MIB,
        pci_device_id: 0x1EB8_10DE,
        ..A100
    },
    // No such card exists: small enough that a test can fill it.
    Model {
        key: "Sim-4GB",
        name: "Sim-4GB (simulated)",
        memory: 4 * GIB,
        multiprocessors: 16,
        compute: (9, 0),
        bus_bits: 256,
        l2_bytes: 4 << 20,
        power_limit_mw: 50_000,
        context_memory: 64 * MIB,
        pci_device_id: 0x0001_10DE,
        ..A100
    },
];

impl Model {
    /// The model that `SIMGPU_CARDS` calls `key` (upper and lower case alike).
    pub fn by_key(key: &str) -> Option<&'static Self> {
        MODELS.iter().find(|model| model.key.eq_ignore_ascii_case(key))
    }

    /// CUDA cores of the whole card, as NVML counts them.
    pub const fn cores(&self) -> u32 {
        self.multiprocessors * self.cores_per_multiprocessor
    }
}

//! `CUdevice_attribute`: what a card says of itself, by number.
//!
//! Every number that CUDA has is answered: clients take an error for one unknown attribute as a broken driver. What this
//! page doesn't list is 0, "not there".

use simgpu_device::Card;

const MAX: i32 = i32::MAX;

/// The numbers that CUDA 13.5 defines; the driver refuses others.
const NUMBERS: std::ops::RangeInclusive<i32> = 1..=161;

/// Whether there is an attribute of this number.
pub(crate) fn exists(number: i32) -> bool {
    NUMBERS.contains(&number)
}

/// The value of attribute `number` of `card`.
pub(crate) fn attribute(card: Card, number: i32) -> i32 {
    from_model(card, number).or_else(|| common(number)).unwrap_or(0)
}

/// What differs between models.
fn from_model(card: Card, number: i32) -> Option<i32> {
    let model = card.model();
    let pci = card.pci();
    let ampere = model.compute >= (8, 0);
    let hopper = model.compute >= (9, 0);
    let value = match number {
        13 => model.core_clock_khz,
        16 => model.multiprocessors,
        33 => pci.bus,
        34 => pci.device,
        36 => model.memory_clock_khz,
        37 => model.bus_bits,
        38 => model.l2_bytes,
        39 => model.threads_per_multiprocessor,
        40 => model.copy_engines,
        50 => pci.domain,
        75 => model.compute.0,
        76 => model.compute.1,
        81 => model.shared_per_multiprocessor,
        // Half rate for the data-centre chips, one thirty-second for the others.
        87 => {
            if matches!(model.compute, (8 | 9, 0)) {
                2
            } else {
                32
            }
        }
        97 => model.shared_per_block_optin,
        106 => model.blocks_per_multiprocessor,
        108 => {
            if ampere {
                model.l2_bytes / 4 * 3
            } else {
                0
            }
        }
        109 => {
            if ampere {
                128 << 20
            } else {
                0
            }
        }
        111 => {
            if ampere {
                1024
            } else {
                0
            }
        }
        120 | 127 => u32::from(hopper),
        126 => {
            if hopper {
                4
            } else {
                1
            }
        }
        139 => model.pci_device_id,
        _ => return None,
    };
    i32::try_from(value).ok()
}

/// What is the same for every card: limits of the programming model, and what the simulation can and can't do.
#[allow(clippy::match_same_arms, reason = "one line for each subject")]
fn common(number: i32) -> Option<i32> {
    Some(match number {
        1..=3 => 1024,
        4 => 64,
        5 | 11 => MAX,
        6 | 7 => 65535,
        8 => 48 << 10,
        9 | 12 | 82 => 65536,
        10 => 32,
        14 | 30 => 512,
        51 => 32,
        // Copies beside kernels, mapped host memory, concurrent kernels, ECC, unified addresses.
        15 | 19 | 31 | 32 | 41 => 1,
        21..=23 => 131_072,
        24..=26 => 16384,
        27 | 28 | 42 | 45 | 46 | 52 | 53 | 55 | 61 | 63 | 64 | 66 | 67 | 73 | 74 | 77 => 32768,
        29 | 43 | 62 | 65 => 2048,
        47 | 48 => 8192,
        49 | 58 | 59 | 60 => 16384,
        54 | 68 => 2046,
        56 => 131_072,
        57 => 65536,
        69 => 268_435_456,
        70 => 131_072,
        71 => 65000,
        72 => 2_097_120,
        // Stream priorities, caches, managed memory, pre-emption, same host addresses, cooperative launches,
        // host registration, pools.
        78 | 79 | 80 | 83 | 89 | 90 | 91 | 95 | 99 | 113 | 115 => 1,
        // Virtual memory and what shares it: descriptors, also of pools, sparse and deferred arrays, events between
        // processes, the host's memory.
        102 | 103 | 112 | 119 | 121 | 125 | 145 => 1,
        // Streams that wait for values.
        122 | 123 => 1,
        // No NUMA node of the card's own or near it.
        131 | 134 => -1,
        _ => return None,
    })
}

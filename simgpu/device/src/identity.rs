//! Who a card is: UUID and place on the PCI bus, both computed from its index so that they never change.

use std::fmt;

/// The UUID of a card: 16 bytes, shown as `GPU-8-4-4-4-12`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// The UUID of card number `index`, of a model that is number `model` in the table: always the same.
    pub(crate) fn of_card(model: u32, index: u32) -> Self {
        let seed = (u64::from(model) << 32) | u64::from(index);
        let mut bytes = [0; 16];
        let (first, second) = bytes.split_at_mut(8);
        first.copy_from_slice(&mix(seed ^ 0x73_69_6D_67_70_75_00_01).to_be_bytes());
        second.copy_from_slice(&mix(seed ^ 0x73_69_6D_67_70_75_00_02).to_be_bytes());
        // RFC 9562: version 8 is for bytes made by a rule of one's own.
        bytes[6] = (bytes[6] & 0x0F) | 0x80;
        bytes[8] = (bytes[8] & 0x3F) | 0x80;
        Self(bytes)
    }
}

/// The finishing step of `SplitMix64`: spreads neighbouring numbers over all bits.
const fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GPU-")?;
        for (position, byte) in self.0.iter().enumerate() {
            if matches!(position, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// Where a card sits on the PCI bus; the function is always 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PciAddress {
    /// PCI domain.
    pub domain: u32,
    /// Bus, 0..=255.
    pub bus: u32,
    /// Device on the bus, 0..=31.
    pub device: u32,
}

impl PciAddress {
    /// The place of card number `index` (below [`crate::MAX_CARDS`]).
    pub(crate) const fn of_card(index: u32) -> Self {
        Self { domain: 0, bus: (index * 8 + 7) & 0xFF, device: 0 }
    }
}

/// NVML's long form, `00000000:3B:00.0`.
impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08X}:{:02X}:{:02X}.0", self.domain, self.bus, self.device)
    }
}

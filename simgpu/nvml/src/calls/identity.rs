//! Which cards there are, and what never changes about them.

use std::ffi::{c_char, c_int, c_ulong};

use gpupool_nvidia::nvml::{
    NVML_BRAND_NVIDIA, NVML_DEVICE_ARCH_ADA, NVML_DEVICE_ARCH_AMPERE, NVML_DEVICE_ARCH_BLACKWELL,
    NVML_DEVICE_ARCH_HOPPER, NVML_DEVICE_ARCH_PASCAL, NVML_DEVICE_ARCH_TURING, NVML_DEVICE_ARCH_VOLTA,
    NVML_TOPOLOGY_INTERNAL, NVML_TOPOLOGY_NODE, nvmlDevice_t, nvmlPciInfo_t, nvmlPciInfoExt_v1,
    nvmlPciInfoExt_v1_t,
};
use simgpu_device::{Card, PciAddress};

use super::{card, check_version, entries, handle, index, present, values, write};
use crate::cards::SimulatedCards;
use crate::return_code::ReturnCode;
use crate::text;

/// PCI class and subclass of a card: a display controller, without VGA.
const DISPLAY_CONTROLLER: u32 = 3;
const CONTROLLER_WITHOUT_VGA: u32 = 2;

entries! {
    /// How many cards there are, lost ones among them.
    fn nvmlDeviceGetCount(cards; count: *mut u32) {
        // SAFETY: by this function's own contract.
        unsafe { write(count, cards.count()) }
    }

    /// How many cards there are, lost ones among them.
    fn nvmlDeviceGetCount_v2(cards; count: *mut u32) {
        // SAFETY: by this function's own contract.
        unsafe { write(count, cards.count()) }
    }

    /// The card of an index.
    fn nvmlDeviceGetHandleByIndex(cards; index: u32, device: *mut nvmlDevice_t) {
        // SAFETY: by this function's own contract.
        unsafe { by_index(cards, index, device) }
    }

    /// The card of an index.
    fn nvmlDeviceGetHandleByIndex_v2(cards; index: u32, device: *mut nvmlDevice_t) {
        // SAFETY: by this function's own contract.
        unsafe { by_index(cards, index, device) }
    }

    /// The card of a UUID string.
    fn nvmlDeviceGetHandleByUUID(cards; uuid: *const c_char, device: *mut nvmlDevice_t) {
        // SAFETY: by this function's own contract.
        unsafe {
            let wanted = text::get(uuid)?;
            find(cards, device, |card| card.uuid().to_string().eq_ignore_ascii_case(wanted))
        }
    }

    /// The card of a serial number.
    fn nvmlDeviceGetHandleBySerial(cards; serial: *const c_char, device: *mut nvmlDevice_t) {
        // SAFETY: by this function's own contract.
        unsafe {
            let wanted = text::get(serial)?;
            find(cards, device, |card| serial_number(card) == wanted)
        }
    }

    /// The card at a PCI address, in the long or the short form.
    fn nvmlDeviceGetHandleByPciBusId(cards; bus_id: *const c_char, device: *mut nvmlDevice_t) {
        // SAFETY: by this function's own contract.
        unsafe { by_bus_id(cards, bus_id, device) }
    }

    /// The card at a PCI address, in the long or the short form.
    fn nvmlDeviceGetHandleByPciBusId_v2(cards; bus_id: *const c_char, device: *mut nvmlDevice_t) {
        // SAFETY: by this function's own contract.
        unsafe { by_bus_id(cards, bus_id, device) }
    }

    /// The product name.
    fn nvmlDeviceGetName(cards; device: nvmlDevice_t, name: *mut c_char, length: u32) {
        // SAFETY: by this function's own contract.
        unsafe { text::put(card(cards, device)?.name(), name, length) }
    }

    /// The UUID string: the bytes of `cuDeviceGetUuid`.
    fn nvmlDeviceGetUUID(cards; device: nvmlDevice_t, uuid: *mut c_char, length: u32) {
        // SAFETY: by this function's own contract.
        unsafe { text::put(&card(cards, device)?.uuid().to_string(), uuid, length) }
    }

    /// The serial number, thirteen digits.
    fn nvmlDeviceGetSerial(cards; device: nvmlDevice_t, serial: *mut c_char, length: u32) {
        // SAFETY: by this function's own contract.
        unsafe { text::put(&serial_number(&card(cards, device)?), serial, length) }
    }

    /// Compute capability, such as 9 and 0.
    fn nvmlDeviceGetCudaComputeCapability(cards; device: nvmlDevice_t, major: *mut u32, minor: *mut u32) {
        let (card_major, card_minor) = card(cards, device)?.model().compute;
        if minor.is_null() {
            return Err(ReturnCode::InvalidArgument);
        }
        // SAFETY: by this function's own contract.
        unsafe { write(major, card_major).and_then(|()| write(minor, card_minor)) }
    }

    /// The PCI address, for old callers: they have room for 52 bytes or 68, so only the first 36 are written.
    fn nvmlDeviceGetPciInfo(cards; device: nvmlDevice_t, pci: *mut nvmlPciInfo_t) {
        // SAFETY: by this function's own contract.
        unsafe { write_head(pci, &pci_info(&card(cards, device)?)) }
    }

    /// The PCI address, for old callers: they have room for 52 bytes or 68, so only the first 36 are written.
    fn nvmlDeviceGetPciInfo_v2(cards; device: nvmlDevice_t, pci: *mut nvmlPciInfo_t) {
        // SAFETY: by this function's own contract.
        unsafe { write_head(pci, &pci_info(&card(cards, device)?)) }
    }

    /// The PCI address.
    fn nvmlDeviceGetPciInfo_v3(cards; device: nvmlDevice_t, pci: *mut nvmlPciInfo_t) {
        // SAFETY: by this function's own contract.
        unsafe { write(pci, pci_info(&card(cards, device)?)) }
    }

    /// The PCI address with the card's class.
    fn nvmlDeviceGetPciInfoExt(cards; device: nvmlDevice_t, pci: *mut nvmlPciInfoExt_v1_t) {
        let nvmlPciInfo_t { domain, bus, device, pciDeviceId, pciSubSystemId, busId, .. } =
            pci_info(&card(cards, device)?);
        let info = nvmlPciInfoExt_v1_t {
            version: nvmlPciInfoExt_v1,
            domain,
            bus,
            device,
            pciDeviceId,
            pciSubSystemId,
            baseClass: DISPLAY_CONTROLLER,
            subClass: CONTROLLER_WITHOUT_VGA,
            busId,
        };
        // SAFETY: by this function's own contract; the version is the first field.
        unsafe { check_version(pci.cast(), nvmlPciInfoExt_v1).and_then(|()| write(pci, info)) }
    }

    /// The processors near the card: all of them, one bit each.
    fn nvmlDeviceGetCpuAffinity(cards; device: nvmlDevice_t, words: u32, set: *mut c_ulong) {
        card(cards, device)?;
        if set.is_null() || words == 0 {
            return Err(ReturnCode::InvalidArgument);
        }
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        for word in 0..words as usize {
            let mask = (0..c_ulong::BITS as usize)
                .filter(|bit| word * c_ulong::BITS as usize + bit < processors)
                .fold(0, |mask, bit| mask | 1 << bit);
            // SAFETY: by this function's own contract the set has that many words.
            unsafe { write(set.add(word), mask)? };
        }
        Ok(())
    }

    /// How far apart two cards are: all of ours share a NUMA node.
    fn nvmlDeviceGetTopologyCommonAncestor(cards; first: nvmlDevice_t, second: nvmlDevice_t, level: *mut u32) {
        let (first, second) = (card(cards, first)?, card(cards, second)?);
        let nearness = if first.index() == second.index() { NVML_TOPOLOGY_INTERNAL } else { NVML_TOPOLOGY_NODE };
        // SAFETY: by this function's own contract.
        unsafe { write(level, nearness) }
    }

    /// Whether two cards share a board: no two of ours do.
    fn nvmlDeviceOnSameBoard(cards; first: nvmlDevice_t, second: nvmlDevice_t, same: *mut c_int) {
        let (first, second) = (card(cards, first)?, card(cards, second)?);
        // SAFETY: by this function's own contract.
        unsafe { write(same, c_int::from(first.index() == second.index())) }
    }
}

values! {
    /// The card's index, from 0.
    fn nvmlDeviceGetIndex -> u32 = |card| Ok(index(card));
    /// The number of the device file, which is the index here.
    fn nvmlDeviceGetMinorNumber -> u32 = |card| Ok(index(card));
    /// The brand.
    fn nvmlDeviceGetBrand -> u32 = |_| Ok(NVML_BRAND_NVIDIA);
    /// The architecture's number.
    fn nvmlDeviceGetArchitecture -> u32 = |card| Ok(architecture(card.model().compute));
    /// How many CUDA cores the card has.
    fn nvmlDeviceGetNumGpuCores -> u32 = |card| Ok(card.model().cores());
    /// Whether the handle is a part of a card: never.
    fn nvmlDeviceIsMigDeviceHandle -> u32 = |_| Ok(0);
}

/// # Safety
/// `device` is null or can be written.
unsafe fn by_index(
    cards: &'static SimulatedCards,
    index: u32,
    device: *mut nvmlDevice_t,
) -> Result<(), ReturnCode> {
    let card = present(cards.card(index).ok_or(ReturnCode::InvalidArgument)?)?;
    // SAFETY: the caller's promise is ours.
    unsafe { write(device, handle(&card)) }
}

/// # Safety
/// `bus_id` is null or a string; `device` is null or can be written.
unsafe fn by_bus_id(
    cards: &'static SimulatedCards,
    bus_id: *const c_char,
    device: *mut nvmlDevice_t,
) -> Result<(), ReturnCode> {
    // SAFETY: the caller's promise is ours.
    unsafe {
        let wanted = parse_bus_id(text::get(bus_id)?).ok_or(ReturnCode::InvalidArgument)?;
        find(cards, device, |card| card.pci() == wanted)
    }
}

/// The first card that `is_wanted`.
///
/// # Safety
/// `device` is null or can be written.
unsafe fn find(
    cards: &'static SimulatedCards,
    device: *mut nvmlDevice_t,
    is_wanted: impl Fn(&Card) -> bool,
) -> Result<(), ReturnCode> {
    let card = present(cards.all().find(is_wanted).ok_or(ReturnCode::NotFound)?)?;
    // SAFETY: the caller's promise is ours.
    unsafe { write(device, handle(&card)) }
}

/// Hands the caller of an old function the part of the address that all callers have room for.
///
/// # Safety
/// `pci` is null or valid for a write of the bytes before [`nvmlPciInfo_t::busId`]; it need not be aligned.
unsafe fn write_head(pci: *mut nvmlPciInfo_t, info: &nvmlPciInfo_t) -> Result<(), ReturnCode> {
    if pci.is_null() {
        return Err(ReturnCode::InvalidArgument);
    }
    let length = std::mem::offset_of!(nvmlPciInfo_t, busId);
    // SAFETY: not null, the caller vouches for that many bytes, and ours cannot overlap them.
    unsafe { pci.cast::<u8>().copy_from_nonoverlapping((&raw const *info).cast(), length) };
    Ok(())
}

fn pci_info(card: &Card) -> nvmlPciInfo_t {
    let address = card.pci();
    let PciAddress { domain, bus, device } = address;
    nvmlPciInfo_t {
        busIdLegacy: text::field(&format!("{domain:04X}:{bus:02X}:{device:02X}.0")),
        domain,
        bus,
        device,
        pciDeviceId: card.model().pci_device_id,
        pciSubSystemId: card.model().pci_device_id,
        busId: text::field(&address.to_string()),
    }
}

/// The address in `[domain:]bus:device[.function]`, all in hexadecimal.
fn parse_bus_id(text: &str) -> Option<PciAddress> {
    let number = |text| u32::from_str_radix(text, 16).ok();
    let (address, function) = text.split_once('.').unwrap_or((text, "0"));
    if number(function) != Some(0) {
        return None;
    }
    let parts: Vec<&str> = address.split(':').collect();
    let (domain, bus, device) = match parts[..] {
        [domain, bus, device] => (domain, bus, device),
        [bus, device] => ("0", bus, device),
        _ => return None,
    };
    Some(PciAddress { domain: number(domain)?, bus: number(bus)?, device: number(device)? })
}

/// Thirteen digits, made from the UUID.
fn serial_number(card: &Card) -> String {
    let number = u128::from_be_bytes(card.uuid().0) % 10_u128.pow(13);
    format!("{number:013}")
}

/// NVML's number of the architecture with a compute capability.
fn architecture(capability: (u32, u32)) -> u32 {
    match capability {
        (..=6, _) => NVML_DEVICE_ARCH_PASCAL,
        (7, ..=4) => NVML_DEVICE_ARCH_VOLTA,
        (7, _) => NVML_DEVICE_ARCH_TURING,
        (8, 9) => NVML_DEVICE_ARCH_ADA,
        (8, _) => NVML_DEVICE_ARCH_AMPERE,
        (9, _) => NVML_DEVICE_ARCH_HOPPER,
        _ => NVML_DEVICE_ARCH_BLACKWELL,
    }
}

#[cfg(test)]
mod tests {
    use super::{PciAddress, architecture, parse_bus_id};

    fn at(domain: u32, bus: u32, device: u32) -> PciAddress {
        PciAddress { domain, bus, device }
    }

    #[test]
    fn long_short_and_domainless_addresses_are_read() {
        assert_eq!(parse_bus_id("00000000:3B:00.0"), Some(at(0, 0x3b, 0)));
        assert_eq!(parse_bus_id("0001:3b:01.0"), Some(at(1, 0x3b, 1)));
        assert_eq!(parse_bus_id("3B:00"), Some(at(0, 0x3b, 0)));
        for wrong in ["", "3B", "3B:00.1", "x:3B:00.0", "0:0:0:0"] {
            assert_eq!(parse_bus_id(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn architectures_are_nvmls_numbers() {
        let known =
            [((7, 5), 6), ((8, 0), 7), ((8, 6), 7), ((8, 9), 8), ((9, 0), 9), ((10, 0), 10), ((12, 0), 10)];
        for (capability, number) in known {
            assert_eq!(architecture(capability), number, "{capability:?}");
        }
    }
}

//! Who the card is: answered from the card table until the process holds one, by the real driver afterwards.
//!
//! Before the grant there is one card, device 0, and no context. Wrong arguments get the driver's own codes.

mod visible_devices;

use core::ffi::{CStr, c_char, c_int, c_void};

use gpupool_wire::cards::Card;

use gpupool_nvidia::cuda::{
    CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_DEVICE, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NO_DEVICE,
    CUDA_SUCCESS, CUresult,
};

use self::visible_devices::shows_a_card;
use crate::agent::conversation::Retry;
use crate::lease;
use crate::real::call;
use crate::state::{self, Mode, PROCESS, ProcessStage};
use crate::sys;
use crate::table::Entry;
use crate::text::{Text, UPPER};

/// The card to speak of before the grant. Identity rows get here between `cuInit` and the grant only.
fn shown() -> Result<&'static Card, CUresult> {
    state::visible_card().ok_or(CUDA_ERROR_NO_DEVICE)
}

/// Writes an answer of a query about `device`.
///
/// # Safety
/// `place` is null or points to a `T` that may be written.
unsafe fn put<T>(place: *mut T, device: c_int, value: T) -> CUresult {
    if place.is_null() {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if device != 0 {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    // SAFETY: the caller's own place for the answer.
    unsafe { place.write(value) };
    CUDA_SUCCESS
}

/// Writes a text with its NUL into `room` bytes; what does not fit is cut.
///
/// # Safety
/// `place` is null or points to `room` bytes that may be written.
unsafe fn put_text(place: *mut c_char, room: c_int, device: c_int, text: &[u8]) -> CUresult {
    let Some(last) = usize::try_from(room).ok().and_then(|room| room.checked_sub(1)) else {
        return CUDA_ERROR_INVALID_VALUE;
    };
    if place.is_null() {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if device != 0 {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    let length = text.len().min(last);
    // SAFETY: the caller's own place for `room` bytes.
    unsafe {
        core::ptr::copy_nonoverlapping(text.as_ptr().cast(), place, length);
        place.add(length).write(0);
    }
    CUDA_SUCCESS
}

/// `cuInit`: introduces the process; the real one comes with the grant.
///
/// # Safety
/// None of its arguments is a pointer. Where the driver is initialised already, it must be possible to call it here.
pub(crate) unsafe extern "C" fn init(flags: u32) -> CUresult {
    if state::mode() == Mode::NoPool || state::stage() == ProcessStage::Granted {
        // SAFETY: the caller's arguments.
        return unsafe { call!(Entry::cuInit, flags => u32) };
    }
    if flags != 0 {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if let Err(code) = lease::driver_survived_fork() {
        return code;
    }
    if state::stage() < ProcessStage::Initialised {
        if let Err(code) = lease::introduce(Retry::UntilConnected) {
            if state::mode() == Mode::Pooled {
                return code;
            }
            // The agent cannot serve this library and lets its program go.
            // SAFETY: the caller's arguments.
            return unsafe { call!(Entry::cuInit, flags => u32) };
        }
        let list = sys::variable(b"CUDA_VISIBLE_DEVICES").map(CStr::to_bytes);
        if !shows_a_card(list, PROCESS.pages.cards()) {
            return CUDA_ERROR_NO_DEVICE;
        }
        state::initialised();
    }
    CUDA_SUCCESS
}

/// `cuDeviceGetCount`: one card.
///
/// # Safety
/// `count` is null or points to a `c_int`, 4 bytes, that may be written.
pub(crate) unsafe extern "C" fn count(count: *mut c_int) -> CUresult {
    // SAFETY: the caller's arguments.
    unsafe { put(count, 0, 1) }
}

/// `cuDeviceGet`: the card with ordinal 0.
///
/// # Safety
/// `device` is null or points to a `c_int`, 4 bytes, that may be written.
pub(crate) unsafe extern "C" fn get(device: *mut c_int, ordinal: c_int) -> CUresult {
    // SAFETY: the caller's arguments.
    unsafe { put(device, ordinal, 0) }
}

/// `cuDeviceGetName`.
///
/// # Safety
/// `name` is null or points to `room` bytes that may be written.
pub(crate) unsafe extern "C" fn name(name: *mut c_char, room: c_int, device: c_int) -> CUresult {
    match shown() {
        // SAFETY: the caller's arguments.
        Ok(card) => unsafe { put_text(name, room, device, card.name_bytes()) },
        Err(code) => code,
    }
}

/// A uuid as the driver writes it. Both versions of the call mean the same; they differ for parts of cards.
///
/// # Safety
/// `uuid` is null or points to 16 bytes that may be written.
pub(crate) unsafe extern "C" fn uuid(uuid: *mut [u8; 16], device: c_int) -> CUresult {
    match shown() {
        // SAFETY: the caller's arguments.
        Ok(card) => unsafe { put(uuid, device, card.uuid) },
        Err(code) => code,
    }
}

/// `cuDeviceGetAttribute`.
///
/// # Safety
/// `value` is null or points to a `c_int`, 4 bytes, that may be written.
pub(crate) unsafe extern "C" fn attribute(value: *mut c_int, number: c_int, device: c_int) -> CUresult {
    match shown().map(|card| card.attribute(number)) {
        // SAFETY: the caller's arguments.
        Ok(Some(answer)) => unsafe { put(value, device, answer) },
        Ok(None) => CUDA_ERROR_INVALID_VALUE,
        Err(code) => code,
    }
}

/// The limit of the pod, which is the card's size as far as the program can tell.
fn limit_of(card_bytes: u64) -> u64 {
    match state::limits() {
        Some(limits) if state::mode() == Mode::Pooled => limits.memory_bytes().min(card_bytes),
        _ => card_bytes,
    }
}

/// The card to speak of, unless the real driver has to answer.
fn not_granted() -> Option<&'static Card> {
    if state::stage() == ProcessStage::Initialised { state::visible_card() } else { None }
}

/// `cuDeviceTotalMem`: the pod's limit.
///
/// # Safety
/// `bytes` is null or points to a `usize`, 8 bytes, that may be written.
pub(crate) unsafe extern "C" fn total_memory(bytes: *mut usize, device: c_int) -> CUresult {
    // SAFETY: the caller's arguments.
    unsafe {
        if let Some(card) = not_granted() {
            let total = usize::try_from(limit_of(card.total_memory)).unwrap_or(usize::MAX);
            return put(bytes, device, total);
        }
        let code = call!(Entry::cuDeviceTotalMem_v2, bytes => *mut usize, device => c_int);
        if code == CUDA_SUCCESS && !bytes.is_null() {
            *bytes = usize::try_from(limit_of(*bytes as u64)).unwrap_or(usize::MAX);
        }
        code
    }
}

/// The form of CUDA 3.1 and before, with 32 bits.
///
/// # Safety
/// `bytes` is null or points to a `u32`, 4 bytes, that may be written.
pub(crate) unsafe extern "C" fn total_memory_v1(bytes: *mut u32, device: c_int) -> CUresult {
    // SAFETY: the caller's arguments.
    unsafe {
        if let Some(card) = not_granted() {
            return put(bytes, device, u32::try_from(limit_of(card.total_memory)).unwrap_or(u32::MAX));
        }
        let code = call!(Entry::cuDeviceTotalMem, bytes => *mut u32, device => c_int);
        if code == CUDA_SUCCESS && !bytes.is_null() {
            *bytes = u32::try_from(limit_of(u64::from(*bytes))).unwrap_or(u32::MAX);
        }
        code
    }
}

/// `0000:3B:00.0`, as the driver writes bus ids; a graphics card's function is always 0.
fn bus_text(card: &Card) -> Text {
    let mut text = Text::new();
    text.add_hex(card.pci_domain, 4, UPPER)
        .add(b":")
        .add_hex(card.pci_bus, 2, UPPER)
        .add(b":")
        .add_hex(card.pci_device, 2, UPPER)
        .add(b".0");
    text
}

/// `cuDeviceGetPCIBusId`.
///
/// # Safety
/// `text` is null or points to `room` bytes that may be written.
pub(crate) unsafe extern "C" fn bus_id(text: *mut c_char, room: c_int, device: c_int) -> CUresult {
    match shown() {
        // SAFETY: the caller's arguments.
        Ok(card) => unsafe { put_text(text, room, device, bus_text(card).as_bytes()) },
        Err(code) => code,
    }
}

/// Domain, bus and device of `[domain:]bus:device[.function]`, all hexadecimal.
fn parse_bus(text: &[u8]) -> Option<(u32, u32, u32)> {
    let mut parts = [0_u32; 3];
    let mut count = 0;
    let place = text.split(|&byte| byte == b'.').next()?;
    for part in place.split(|&byte| byte == b':') {
        if part.is_empty() || part.len() > 8 {
            return None;
        }
        let number = part
            .iter()
            .try_fold(0_u32, |number, &byte| Some(number << 4 | char::from(byte).to_digit(16)?))?;
        *parts.get_mut(count)? = number;
        count += 1;
    }
    match (count, parts) {
        (2, [bus, device, _]) => Some((0, bus, device)),
        (3, [domain, bus, device]) => Some((domain, bus, device)),
        _ => None,
    }
}

/// `cuDeviceGetByPCIBusId`.
///
/// # Safety
/// `text` is null or points to a text with its NUL; `device` is null or points to a `c_int`, 4 bytes, that may be
/// written.
pub(crate) unsafe extern "C" fn by_bus_id(device: *mut c_int, text: *const c_char) -> CUresult {
    if text.is_null() {
        return CUDA_ERROR_INVALID_VALUE;
    }
    // SAFETY: the caller's arguments.
    let place = parse_bus(unsafe { CStr::from_ptr(text) }.to_bytes());
    match (shown(), place) {
        (Err(code), _) => code,
        (_, None) => CUDA_ERROR_INVALID_VALUE,
        (Ok(card), Some(place)) if place == (card.pci_domain, card.pci_bus, card.pci_device) => {
            // SAFETY: the caller's arguments.
            unsafe { put(device, 0, 0) }
        }
        _ => CUDA_ERROR_INVALID_DEVICE,
    }
}

/// `cuDeviceComputeCapability`.
///
/// # Safety
/// `major` and `minor` are null or each point to a `c_int`, 4 bytes, that may be written.
pub(crate) unsafe extern "C" fn compute_capability(
    major: *mut c_int,
    minor: *mut c_int,
    device: c_int,
) -> CUresult {
    match shown() {
        // SAFETY: the caller's arguments.
        Ok(card) => unsafe {
            match put(major, device, card.cc_major) {
                CUDA_SUCCESS => put(minor, device, card.cc_minor),
                code => code,
            }
        },
        Err(code) => code,
    }
}

/// No context is active before the grant, and asking makes none.
///
/// # Safety
/// `flags` is null or points to a `u32`, `active` to a `c_int`, 4 bytes each, that may be written.
pub(crate) unsafe extern "C" fn primary_state(
    device: c_int,
    flags: *mut u32,
    active: *mut c_int,
) -> CUresult {
    // SAFETY: the caller's arguments.
    unsafe {
        match put(flags, device, 0) {
            CUDA_SUCCESS => put(active, device, 0),
            code => code,
        }
    }
}

/// `cuCtxGetCurrent`: before the grant there is none.
///
/// # Safety
/// `context` is null or points to a `CUcontext`, 8 bytes, that may be written.
pub(crate) unsafe extern "C" fn current_context(context: *mut *mut c_void) -> CUresult {
    // SAFETY: the caller's arguments.
    unsafe { put(context, 0, core::ptr::null_mut()) }
}

/// `cuCtxSetCurrent`: only none can be made current before the grant.
///
/// # Safety
/// The handle is not followed: it may be any word.
pub(crate) unsafe extern "C" fn set_current_context(context: *mut c_void) -> CUresult {
    // There is no context that it could be.
    if context.is_null() { CUDA_SUCCESS } else { CUDA_ERROR_INVALID_CONTEXT }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bus_id_is_written_as_the_driver_does() {
        let card = Card { pci_domain: 1, pci_bus: 0x3b, pci_device: 5, ..Card::new([1; 16]) };
        assert_eq!(bus_text(&card).as_bytes(), b"0001:3B:05.0");
    }

    #[test]
    fn a_bus_id_is_read_in_all_its_forms() {
        assert_eq!(parse_bus(b"0001:3B:05.0"), Some((1, 0x3b, 5)));
        assert_eq!(parse_bus(b"00000001:3b:05.0"), Some((1, 0x3b, 5)));
        assert_eq!(parse_bus(b"3b:05.0"), Some((0, 0x3b, 5)));
        assert_eq!(parse_bus(b"1:3b:05"), Some((1, 0x3b, 5)));
        for rubbish in ["", "3b", "x:1:2", "1:2:3:4", "000000001:1:2", ":1:2"] {
            assert_eq!(parse_bus(rubbish.as_bytes()), None, "{rubbish:?}");
        }
    }

    #[test]
    fn an_answer_goes_only_where_there_is_a_place_and_a_card() {
        let mut place = 7;
        // SAFETY: the place is this function's own.
        unsafe {
            assert_eq!(put(core::ptr::null_mut(), 0, 1), CUDA_ERROR_INVALID_VALUE);
            assert_eq!(put(&raw mut place, 1, 1), CUDA_ERROR_INVALID_DEVICE);
            assert_eq!(place, 7);
            assert_eq!(put(&raw mut place, 0, 1), CUDA_SUCCESS);
        }
        assert_eq!(place, 1);
    }

    #[test]
    fn a_text_is_cut_to_its_room_and_always_ends() {
        let mut room = [9_u8; 8];
        // SAFETY: the room is told as it is, or smaller.
        let codes = unsafe {
            let place = room.as_mut_ptr().cast();
            (put_text(place, 0, 0, b"abcdef"), put_text(place, 4, 0, b"abcdef"))
        };
        assert_eq!(codes, (CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS));
        assert_eq!(room, [b'a', b'b', b'c', 0, 9, 9, 9, 9]);
    }
}

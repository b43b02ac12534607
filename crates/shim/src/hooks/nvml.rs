//! NVML as the pod may see it: one card, under its real index and uuid, with the pod's limit as its memory.
//!
//! Nothing here ever takes a lease or waits for the agent: a tool that looks at a machine must not hang. Where the
//! agent cannot be asked, the real answers go through unchanged.

pub(crate) mod processes;

use core::ffi::{c_char, c_uint};

use gpupool_wire::cards::Card;

use gpupool_nvidia::nvml::{
    NVML_ERROR_INVALID_ARGUMENT, NVML_ERROR_NOT_FOUND, NVML_SUCCESS, nvmlDevice_t, nvmlMemory_t,
    nvmlMemory_v2_t, nvmlReturn_t,
};

use crate::agent::conversation::Retry;
use crate::lease;
use crate::real::call;
use crate::state::{self, Mode};
use crate::table::Entry;
use crate::text::Text;

/// The card that is shown; nothing where the real answers are.
fn shown() -> Option<&'static Card> {
    if state::mode() == Mode::NoPool || lease::introduce(Retry::Once).is_err() {
        return None;
    }
    lease::look_after_connection();
    state::visible_card()
}

/// The shown card's handle.
///
/// # Safety
/// `device` is null or points to an `nvmlDevice_t`, 8 bytes, that may be written.
unsafe fn handle_of(card: &Card, device: *mut nvmlDevice_t) -> nvmlReturn_t {
    let mut uuid = Text::new();
    uuid.add_uuid(&card.uuid).add(b"\0");
    let text = uuid.as_bytes().as_ptr().cast::<c_char>();
    // SAFETY: a text with its NUL, and the caller's place for the handle.
    unsafe { call!(Entry::nvmlDeviceGetHandleByUUID, text => *const c_char, device => *mut nvmlDevice_t) }
}

macro_rules! count {
    ($name:ident, $entry:ident) => {
        /// How many cards there are: one.
        ///
        /// # Safety
        /// `count` is null or points to a `c_uint`, 4 bytes, that may be written.
        pub(crate) unsafe extern "C" fn $name(count: *mut c_uint) -> nvmlReturn_t {
            // SAFETY: the caller's arguments. The real one is asked first: it knows whether it was initialised.
            unsafe {
                let code = call!(Entry::$entry, count => *mut c_uint);
                if code == NVML_SUCCESS && !count.is_null() && shown().is_some() {
                    *count = (*count).min(1);
                }
                code
            }
        }
    };
}

count!(count, nvmlDeviceGetCount);
count!(count_v2, nvmlDeviceGetCount_v2);

macro_rules! by_index {
    ($name:ident, $entry:ident) => {
        /// The card with an index: 0, since there is one; its real index too, since that is what it says of itself.
        ///
        /// # Safety
        /// `device` is null or points to an `nvmlDevice_t`, 8 bytes, that may be written.
        pub(crate) unsafe extern "C" fn $name(index: c_uint, device: *mut nvmlDevice_t) -> nvmlReturn_t {
            // SAFETY: the caller's arguments.
            unsafe {
                match shown() {
                    None => call!(Entry::$entry, index => c_uint, device => *mut nvmlDevice_t),
                    Some(card) if index == 0 || index == card.nvml_index => handle_of(card, device),
                    Some(_) => NVML_ERROR_INVALID_ARGUMENT,
                }
            }
        }
    };
}

by_index!(by_index, nvmlDeviceGetHandleByIndex);
by_index!(by_index_v2, nvmlDeviceGetHandleByIndex_v2);

/// Lets a handle through if it is the shown card's.
///
/// # Safety
/// `device` is null or points to an `nvmlDevice_t`, 8 bytes, which the driver has written if `code` is success.
unsafe fn only_shown(code: nvmlReturn_t, device: *mut nvmlDevice_t) -> nvmlReturn_t {
    if code != NVML_SUCCESS || device.is_null() {
        return code;
    }
    let Some(card) = shown() else { return code };
    let mut own: nvmlDevice_t = core::ptr::null_mut();
    // SAFETY: the driver has just written the caller's place.
    unsafe {
        if handle_of(card, &raw mut own) != NVML_SUCCESS || *device == own {
            return code;
        }
        device.write(core::ptr::null_mut());
    }
    NVML_ERROR_NOT_FOUND
}

macro_rules! by_text {
    ($name:ident, $entry:ident) => {
        /// The card that a text names, if it is the shown one.
        ///
        /// # Safety
        /// `text` is null or points to a text with its NUL (of `nvmlDeviceGetHandleByUUIDV`: to an `nvmlUUID_t`);
        /// `device` is null or points to an `nvmlDevice_t`, 8 bytes, that may be written.
        pub(crate) unsafe extern "C" fn $name(text: *const c_char, device: *mut nvmlDevice_t) -> nvmlReturn_t {
            // SAFETY: the caller's arguments.
            unsafe {
                let code = call!(Entry::$entry, text => *const c_char, device => *mut nvmlDevice_t);
                only_shown(code, device)
            }
        }
    };
}

by_text!(by_uuid, nvmlDeviceGetHandleByUUID);
by_text!(by_bus_id, nvmlDeviceGetHandleByPciBusId);
by_text!(by_bus_id_v2, nvmlDeviceGetHandleByPciBusId_v2);
by_text!(by_serial, nvmlDeviceGetHandleBySerial);
// What names it is a structure here, for the driver to read.
by_text!(by_uuid_structure, nvmlDeviceGetHandleByUUIDV);

/// What of the pod's limit is used: limit and used bytes.
fn of_the_pod(card_total: u64) -> Option<(u64, u64)> {
    shown()?;
    let account = state::account()?;
    Some((account.limit().min(card_total), account.used()))
}

/// What the pod may use of the card, and has used.
///
/// # Safety
/// `device` is a handle of NVML's; `memory` is null or points to an `nvmlMemory_t`, 24 bytes, that may be written.
pub(crate) unsafe extern "C" fn memory(device: nvmlDevice_t, memory: *mut nvmlMemory_t) -> nvmlReturn_t {
    // SAFETY: the caller's arguments. The real one knows which handles are good.
    unsafe {
        let code = call!(Entry::nvmlDeviceGetMemoryInfo, device => nvmlDevice_t, memory => *mut nvmlMemory_t);
        if code == NVML_SUCCESS
            && let Some(memory) = memory.as_mut()
            && let Some((limit, used)) = of_the_pod(memory.total)
        {
            *memory = nvmlMemory_t { total: limit, free: limit.saturating_sub(used), used };
        }
        code
    }
}

/// The second form tells apart what the driver keeps for itself; none of that is the pod's.
///
/// # Safety
/// `device` is a handle of NVML's; `memory` is null or points to an `nvmlMemory_v2_t`, 40 bytes, whose `version` is set
/// and that may be written.
pub(crate) unsafe extern "C" fn memory_v2(
    device: nvmlDevice_t,
    memory: *mut nvmlMemory_v2_t,
) -> nvmlReturn_t {
    // SAFETY: the caller's arguments. The real one knows which handles and versions are good.
    unsafe {
        let code =
            call!(Entry::nvmlDeviceGetMemoryInfo_v2, device => nvmlDevice_t, memory => *mut nvmlMemory_v2_t);
        if code == NVML_SUCCESS
            && let Some(memory) = memory.as_mut()
            && let Some((limit, used)) = of_the_pod(memory.total)
        {
            let free = limit.saturating_sub(used);
            *memory = nvmlMemory_v2_t { version: memory.version, total: limit, reserved: 0, free, used };
        }
        code
    }
}

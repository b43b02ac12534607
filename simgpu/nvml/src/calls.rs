//! The exported functions, by subject. `names.txt` lists all of NVML's names; a plus sign there says that the
//! function is one of these, the rest is written by `build.rs`.

#![allow(non_snake_case, reason = "the names are NVML's")]

pub mod identity;
pub mod library;
pub mod processes;
pub mod readings;

use gpupool_nvidia::nvml::nvmlDevice_t;
use simgpu_device::Card;

use crate::cards::{self, SimulatedCards};
use crate::return_code::ReturnCode;

include!(concat!(env!("OUT_DIR"), "/stubs.rs"));

/// Writes exported functions that need an init before them. The body sees the cards under the name given first
/// and ends in a `Result<(), ReturnCode>`.
macro_rules! entries {
    ($($(#[$doc:meta])* fn $name:ident($cards:tt; $($argument:ident: $type:ty),*) $body:block)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// Every pointer is null or good for what NVML's manual lets this function read and write.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> u32 {
            $crate::library::answer(stringify!($name), |$cards| $body)
        }
    )*};
}

/// Writes exported functions that read one value of one card.
macro_rules! values {
    ($($(#[$doc:meta])* fn $name:ident -> $type:ty = |$card:pat_param| $value:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// `value` is null or can be written.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(device: gpupool_nvidia::nvml::nvmlDevice_t, value: *mut $type) -> u32 {
            $crate::library::answer(stringify!($name), |cards| {
                let $card = &$crate::calls::card(cards, device)?;
                // SAFETY: by this function's own contract.
                unsafe { $crate::calls::write(value, $value?) }
            })
        }
    )*};
}

pub(crate) use {entries, values};

/// Handles start here and count up: no address that a program could hold.
const FIRST_HANDLE: usize = 0x5349_4d00;

/// The handle of a card.
fn handle(card: &Card) -> nvmlDevice_t {
    std::ptr::without_provenance_mut(FIRST_HANDLE + card.index())
}

/// The card's index as NVML writes it.
fn index(card: &Card) -> u32 {
    cards::number(card.index())
}

/// The card of a handle; a lost card answers nothing.
fn card(cards: &'static SimulatedCards, device: nvmlDevice_t) -> Result<Card, ReturnCode> {
    let index = device.addr().checked_sub(FIRST_HANDLE).and_then(|index| u32::try_from(index).ok());
    present(index.and_then(|index| cards.card(index)).ok_or(ReturnCode::InvalidArgument)?)
}

/// The card, unless it is lost.
fn present(card: Card) -> Result<Card, ReturnCode> {
    if card.lost() { Err(ReturnCode::GpuIsLost) } else { Ok(card) }
}

/// Hands a value to the caller.
///
/// # Safety
/// `place` is null or can be written.
unsafe fn write<T>(place: *mut T, value: T) -> Result<(), ReturnCode> {
    if place.is_null() {
        return Err(ReturnCode::InvalidArgument);
    }
    // SAFETY: not null, and the caller's promise is ours; clients from Python don't always align.
    unsafe { place.write_unaligned(value) };
    Ok(())
}

/// Refuses a structure whose version field, the first one, is not the expected one.
///
/// # Safety
/// `version` is null or valid for a read of four bytes, aligned or not.
unsafe fn check_version(version: *const u32, expected: u32) -> Result<(), ReturnCode> {
    if version.is_null() {
        return Err(ReturnCode::InvalidArgument);
    }
    // SAFETY: not null, and the caller's promise is ours.
    let given = unsafe { version.read_unaligned() };
    if given == expected { Ok(()) } else { Err(ReturnCode::ArgumentVersionMismatch) }
}

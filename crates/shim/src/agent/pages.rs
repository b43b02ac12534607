//! The pages that came with a welcome, mapped for as long as the process lives.
//!
//! All zero is "none yet", as a forked child finds it.

use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use gpupool_wire::cards::{Card, CardTable, MAX_CARDS, table_length};
use gpupool_wire::ledger::{self, Ledger};
use gpupool_wire::limits::{self, LimitsPage};

use crate::sys;

/// Where the pages lie.
#[derive(Debug)]
pub(crate) struct Pages {
    /// Address of the flag that launches set. Valid before any launch has a target.
    pub(crate) submitted: AtomicUsize,
    limits: AtomicPtr<LimitsPage>,
    table: AtomicPtr<u8>,
    /// Bytes of the table; 0 while it is not to be read.
    table_length: AtomicUsize,
    ledger: AtomicPtr<c_void>,
    slot: AtomicU32,
}

impl Pages {
    /// No pages.
    pub(crate) const fn new() -> Self {
        Self {
            submitted: AtomicUsize::new(0),
            limits: AtomicPtr::new(core::ptr::null_mut()),
            table: AtomicPtr::new(core::ptr::null_mut()),
            table_length: AtomicUsize::new(0),
            ledger: AtomicPtr::new(core::ptr::null_mut()),
            slot: AtomicU32::new(0),
        }
    }

    /// The limits page, once there is one.
    #[inline]
    pub(crate) fn limits(&self) -> Option<&'static LimitsPage> {
        // SAFETY: set to a page that stays mapped for as long as the process lives.
        unsafe { self.limits.load(Ordering::Acquire).as_ref() }
    }

    /// The cards of the table, once there is one.
    #[inline(never)]
    pub(crate) fn cards(&self) -> &'static [Card] {
        let (length, start) = (self.table_length.load(Ordering::Acquire), self.table.load(Ordering::Acquire));
        if length == 0 || start.is_null() {
            return &[];
        }
        // SAFETY: start and length belong to a sealed file that stays mapped.
        let bytes = unsafe { core::slice::from_raw_parts(start, length) };
        CardTable::parse(bytes).map(|table| table.cards()).unwrap_or_default()
    }

    /// The pod's ledger and this process's slot in it, once there is one.
    #[inline]
    pub(crate) fn ledger(&self) -> Option<(Ledger<'static>, u32)> {
        let ledger = self.ledger.load(Ordering::Acquire);
        if ledger.is_null() {
            return None;
        }
        // SAFETY: set to a ledger of that length that stays mapped.
        let ledger = unsafe { Ledger::view(ledger, ledger::FILE_LENGTH) }.ok()?;
        Some((ledger, self.slot.load(Ordering::Acquire)))
    }

    /// Takes over the limits page behind a descriptor; whether it is one.
    pub(super) fn adopt_limits(&self, fd: i32) -> bool {
        let Some(memory) = map_file(fd, limits::FILE_LENGTH, false) else { return false };
        // SAFETY: a mapping of that length that is never taken away, of a file that cannot shrink.
        let Ok(page) = (unsafe { LimitsPage::open(memory, limits::FILE_LENGTH) }) else { return false };
        self.limits.store(core::ptr::from_ref(page).cast_mut(), Ordering::Release);
        true
    }

    /// Takes over the card table behind a descriptor; whether it is one.
    pub(super) fn adopt_table(&self, fd: i32) -> bool {
        let Ok(identity) = sys::identify(fd) else { return false };
        let length = usize::try_from(identity.size).unwrap_or(0).min(table_length(MAX_CARDS));
        let Some(memory) = map_file(fd, length, false) else { return false };
        // SAFETY: a mapping of that length that is never taken away, of a sealed file.
        let bytes = unsafe { core::slice::from_raw_parts(memory.cast::<u8>(), length) };
        if CardTable::parse(bytes).is_err() {
            return false;
        }
        self.table_length.store(0, Ordering::Release);
        self.table.store(memory.cast(), Ordering::Release);
        self.table_length.store(length, Ordering::Release);
        true
    }

    /// Takes over the ledger behind a descriptor, with this process in `slot`; whether it is one.
    pub(super) fn adopt_ledger(&self, fd: i32, slot: u32) -> bool {
        let Some(memory) = map_file(fd, ledger::FILE_LENGTH, true) else { return false };
        // SAFETY: a mapping of that length that is never taken away, of a file that cannot shrink.
        let Ok(ledger) = (unsafe { Ledger::open(memory, ledger::FILE_LENGTH) }) else { return false };
        let Some(own) = ledger.slot(slot) else { return false };
        own.set_pid(sys::own_pid());
        let flag = core::ptr::from_ref(own.submitted_flag());
        self.submitted.store(flag.expose_provenance(), Ordering::Release);
        self.slot.store(slot, Ordering::Release);
        self.ledger.store(memory.cast(), Ordering::Release);
        true
    }
}

#[inline(never)]
fn map_file(fd: i32, length: usize, writable: bool) -> Option<*mut c_void> {
    let size = usize::try_from(sys::identify(fd).ok()?.size).ok()?;
    if length == 0 || size < length {
        return None;
    }
    sys::map_shared(fd, length, writable).ok()
}

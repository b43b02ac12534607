//! The arguments of a call of any form as words, kept while its hook looks at them.
//!
//! Most calls of a family differ in their arguments' number and order only, and go to the driver as they came. No such
//! call has a floating-point argument, and what the caller put on its stack is at least as much as is read.

use gpupool_nvidia::cuda::CUresult;

use super::callable;
use crate::stop;
use crate::table::Entry;

/// The first six words of a call, from its registers, and eight from the caller's stack.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Arguments([usize; 14]);

impl Arguments {
    /// Those of a call of two.
    pub(crate) fn two<T, U>(first: *mut T, second: *mut U) -> Self {
        let mut words = [0; 14];
        (words[0], words[1]) = (first.expose_provenance(), second.expose_provenance());
        Self(words)
    }

    /// What the caller's stack holds: a structure that is passed as it is, up to 64 bytes.
    pub(crate) fn on_stack(&self) -> [u64; 8] {
        let [_, _, _, _, _, _, stack @ ..] = self.0;
        stack.map(|word| word as u64)
    }

    /// An argument as a number.
    pub(crate) fn word(&self, place: usize) -> usize {
        self.0.get(place).copied().unwrap_or(0)
    }

    /// An argument of 32 bits, whose word may hold anything in its upper half.
    pub(crate) fn half(&self, place: usize) -> u32 {
        u32::try_from(self.word(place) & 0xffff_ffff).unwrap_or(0)
    }

    /// An argument as an address of a `T`; null where the caller passed that.
    pub(crate) fn pointer<T>(&self, place: usize) -> *mut T {
        core::ptr::with_exposed_provenance_mut(self.word(place))
    }

    /// What the driver has written to the place that an argument names; 0 where there is none.
    ///
    /// # Safety
    /// A call that was given the argument must have succeeded.
    pub(crate) unsafe fn written(&self, place: usize) -> u64 {
        let place = self.pointer::<u64>(place);
        // SAFETY: the caller's promise; handles and addresses have eight bytes.
        if place.is_null() { 0 } else { unsafe { place.read_unaligned() } }
    }

    /// Calls the real function of a row with these arguments.
    ///
    /// # Safety
    /// They must be what the row's function asks for.
    #[inline(never)]
    #[allow(clippy::many_single_char_names, reason = "words that mean nothing here")]
    pub(crate) unsafe fn call(&self, entry: Entry) -> CUresult {
        type Any = unsafe extern "C" fn(
            usize,
            usize,
            usize,
            usize,
            usize,
            usize,
            usize,
            usize,
            usize,
            usize,
            usize,
            usize,
            usize,
            usize,
        ) -> CUresult;
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n] = self.0;
        // SAFETY: a function reads the arguments that it has, which are the first of these in every such function.
        unsafe {
            let function: Any =
                core::mem::transmute::<*const (), _>(core::ptr::with_exposed_provenance(callable(entry)));
            stop::at(b"calling");
            let code = function(a, b, c, d, e, f, g, h, i, j, k, l, m, n);
            stop::at(b"called");
            code
        }
    }
}

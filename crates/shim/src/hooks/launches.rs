//! Launches of a pod that may not use its whole card: each waits until the pod owes nothing, and is paid for.
//!
//! At a limit of 100 nothing here is ever called. What is recorded into a graph costs nothing, and nothing is done
//! then: no wait, no event. The graph's own launch is paid for, as one piece.

use core::arch::naked_asm;

use gpupool_nvidia::cuda::{
    CU_STREAM_CAPTURE_STATUS_NONE, CU_STREAM_PER_THREAD, CUDA_LAUNCH_PARAMS, CUDA_SUCCESS, CUlaunchConfig,
    CUresult, CUstreamCaptureStatus,
};

use super::graphs;
use crate::real::call;
use crate::state::account::Account;
use crate::state::launch_costs::{LaunchCosts, Sample, UNKNOWN_COST_NS};
use crate::state::{self, PROCESS};
use crate::sys;
use crate::table::Entry;

/// A launch that must wait sleeps at least so long, so that a program of short kernels is not woken for each of them,
/// and at most so long, so that it hears of another rate. In nanoseconds.
const SLEEP_NS: core::ops::Range<u64> = 500_000..10_000_000;

/// What is launched where, as far as its cost goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Launch {
    /// The same for launches that should cost the same; never 0.
    key: u64,
    /// The stream's handle.
    stream: u64,
}

/// Goes on to the real function of the row in `eax`, with the caller's arguments, once the pod may launch.
///
/// The arguments stay as they are in memory: six registers, and six words of the stack, which is more than any launch
/// takes.
///
/// # Safety
/// Entered only by a trampoline of this library, with the number of a row in `eax` and the registers and the stack as the
/// program called the entry point of that row; six words of the caller's stack above the return address are read.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn paced() {
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "push r9",
        "push r8",
        "push rcx",
        "push rdx",
        "push rsi",
        "push rdi",
        "sub rsp, 64",
        "mov edi, eax",
        "lea rsi, [rbp - 48]",
        "lea rdx, [rbp + 16]",
        "call {begin}",
        // What was begun, until the end.
        "mov [rsp + 56], rdx",
        "movups xmm0, [rbp + 16]",
        "movups xmm1, [rbp + 32]",
        "movups xmm2, [rbp + 48]",
        "movups [rsp], xmm0",
        "movups [rsp + 16], xmm1",
        "movups [rsp + 32], xmm2",
        "mov rdi, [rbp - 48]",
        "mov rsi, [rbp - 40]",
        "mov rdx, [rbp - 32]",
        "mov rcx, [rbp - 24]",
        "mov r8, [rbp - 16]",
        "mov r9, [rbp - 8]",
        "call rax",
        "mov rdi, [rsp + 56]",
        "mov esi, eax",
        "call {end}",
        "leave",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
        begin = sym begin,
        end = sym end,
    )
}

/// What [`paced`] does next.
#[repr(C)]
struct Begun {
    /// Calls this.
    address: usize,
    /// Hands this to [`end`].
    sample: Option<&'static Sample>,
}

const _: () = {
    // `begin` answers in rax and rdx only while its answer has two words.
    assert!(size_of::<Begun>() == 16);
};

/// # Safety
/// `registers` and `stack` must point to six words each.
unsafe extern "C" fn begin(row: u32, registers: *const [usize; 6], stack: *const [usize; 6]) -> Begun {
    let Some(entry) = Entry::from_index(row as usize) else { return Begun { address: 0, sample: None } };
    // SAFETY: the caller's promise, and the program's about its own arguments.
    let launch = unsafe { Launch::of(entry, &*registers, &*stack) };
    Begun { address: graphs::launcher(entry), sample: launch.and_then(pace) }
}

extern "C" fn end(sample: Option<&'static Sample>, code: CUresult) -> CUresult {
    if let Some(sample) = sample {
        LaunchCosts::launched(sample, code == CUDA_SUCCESS);
    }
    code
}

/// Waits until the pod may launch; gives the sample if the launch is to be measured.
fn pace(launch: Launch) -> Option<&'static Sample> {
    let account = state::account()?;
    let bucket = account.bucket();
    if !account.core_rate().is_limited() || is_capturing(launch.stream) {
        return None;
    }
    let costs = &PROCESS.launch_costs;
    let (place, profile) = costs.profile(launch.key)?;
    let owed = &mut |cost| bucket.settle(sys::nanoseconds(), cost, account.core_rate());
    let measure = profile.wants_measuring();
    if measure {
        costs.wait_for_room(place, owed);
    }
    let cost = profile.cost();
    charge(&account, cost);
    profile.charged(cost);
    let sample = if measure { costs.begin((place, profile), cost, launch.stream) } else { None };
    if cost == 0 && sample.is_none() {
        owed(UNKNOWN_COST_NS);
    }
    sample
}

/// Waits until nothing is owed, then owes `cost`.
fn charge(account: &Account, cost: u64) {
    let bucket = account.bucket();
    let mut now = sys::nanoseconds();
    // As long as there is a limit: it may go meanwhile.
    while let rate = account.core_rate()
        && rate.is_limited()
        && let Err(wait) = bucket.take(now, cost, rate)
    {
        sys::sleep_nanoseconds(wait.clamp(SLEEP_NS.start, SLEEP_NS.end));
        let then = now;
        now = sys::nanoseconds();
        bucket.note_wait(now.saturating_sub(then));
    }
}

/// Whether a launch into this stream is recorded rather than made. Where the driver does not say, it is about to
/// refuse the launch.
fn is_capturing(stream: u64) -> bool {
    let mut status = CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: the program's own stream, and a place for the answer.
    let code = unsafe {
        call!(Entry::cuStreamIsCapturing, stream => u64, &raw mut status => *mut CUstreamCaptureStatus)
    };
    code != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE
}

/// Grid, block and dynamic shared memory of a structure that describes a launch.
macro_rules! shape_in {
    ($of:ident) => {
        [
            $of.gridDimX,
            $of.gridDimY,
            $of.gridDimZ,
            $of.blockDimX,
            $of.blockDimY,
            $of.blockDimZ,
            $of.sharedMemBytes,
        ]
    };
}

impl Launch {
    /// What a call with these arguments would launch; nothing where they are such that the driver will refuse it.
    ///
    /// # Safety
    /// Pointers among the arguments must be null or what the driver's function takes.
    unsafe fn of(entry: Entry, registers: &[usize; 6], stack: &[usize; 6]) -> Option<Self> {
        let [first, second, third, fourth, fifth, sixth] = *registers;
        let (what, shape, stream) = match entry {
            Entry::cuGraphLaunch | Entry::cuGraphLaunch_ptsz => (first, [0; 7], second as u64),
            Entry::cuLaunchKernelEx | Entry::cuLaunchKernelEx_ptsz => {
                // SAFETY: the caller's promise.
                let config = unsafe { read_at::<CUlaunchConfig>(first) }?;
                (second, shape_in!(config), config.hStream)
            }
            Entry::cuLaunchCooperativeKernelMultiDevice => {
                // SAFETY: the caller's promise: a list of at least one launch.
                let first = unsafe { read_at::<CUDA_LAUNCH_PARAMS>(first) }?;
                (0, shape_in!(first), first.hStream)
            }
            Entry::cuLaunch => (first, [0; 7], 0),
            Entry::cuLaunchGrid => (first, shape_of([second, third, 0, 0, 0, 0, 0]), 0),
            Entry::cuLaunchGridAsync => (first, shape_of([second, third, 0, 0, 0, 0, 0]), fourth as u64),
            _ => {
                (first, shape_of([second, third, fourth, fifth, sixth, stack[0], stack[1]]), stack[2] as u64)
            }
        };
        let own = stream == 0 && entry.is_per_thread();
        let mut key = what as u64;
        for side in shape {
            key = (key.rotate_left(5) ^ u64::from(side)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        Some(Self { key: key | 1, stream: if own { CU_STREAM_PER_THREAD } else { stream } })
    }
}

/// What lies at an address; nothing for null.
///
/// # Safety
/// A `T` must lie there, or the address must be null.
unsafe fn read_at<T: Copy>(address: usize) -> Option<T> {
    let place = core::ptr::with_exposed_provenance::<T>(address);
    // SAFETY: not null, and the caller's promise for the rest.
    (!place.is_null()).then(|| unsafe { place.read_unaligned() })
}

/// Arguments of 32 bits, which leave the upper half of their words undefined.
#[allow(clippy::cast_possible_truncation, reason = "the upper halves mean nothing")]
fn shape_of(words: [usize; 7]) -> [u32; 7] {
    words.map(|word| word as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GARBAGE: usize = 0xdead_beef_0000_0000;

    fn of(entry: Entry, registers: [usize; 6], stack: [usize; 6]) -> Launch {
        // SAFETY: no launch that is tried here takes pointers.
        unsafe { Launch::of(entry, &registers, &stack) }.unwrap()
    }

    #[test]
    fn launches_of_one_shape_are_of_one_kind_whatever_their_stream() {
        let kernel = |upper: usize, blocks: usize, stream: usize| {
            of(
                Entry::cuLaunchKernel,
                [7, upper | blocks, 1, 1, upper | 32, 1],
                [upper | 1, upper, stream, upper, 0, 0],
            )
        };
        assert_eq!(kernel(0, 108, 0), kernel(GARBAGE, 108, 0));
        assert_eq!(kernel(0, 108, 0).key, kernel(0, 108, 5).key);
        assert_eq!(kernel(0, 108, 5).stream, 5);
        assert_ne!(kernel(0, 108, 0).key, kernel(0, 109, 0).key);
    }

    #[test]
    fn the_same_launch_by_another_function_is_of_the_same_kind() {
        let kernel = of(Entry::cuLaunchKernel, [7, 2, 3, 4, 32, 5], [6, 64, 9, 0, 0, 0]);
        assert_eq!(kernel, of(Entry::cuLaunchCooperativeKernel, [7, 2, 3, 4, 32, 5], [6, 64, 9, 0, 0, 0]));
        let config = CUlaunchConfig {
            gridDimX: 2,
            gridDimY: 3,
            gridDimZ: 4,
            blockDimX: 32,
            blockDimY: 5,
            blockDimZ: 6,
            sharedMemBytes: 64,
            hStream: 9,
            attrs: core::ptr::null_mut(),
            numAttrs: 0,
        };
        let address = (&raw const config).expose_provenance();
        // SAFETY: the address is that of such a structure.
        let with_config = unsafe { Launch::of(Entry::cuLaunchKernelEx, &[address, 7, 0, 0, 0, 0], &[0; 6]) };
        assert_eq!(with_config, Some(kernel));
    }

    #[test]
    fn a_threads_own_default_stream_is_told_from_the_common_one() {
        let graph = |entry| of(entry, [0x1000, 0, 0, 0, 0, 0], [0; 6]).stream;
        assert_eq!(
            (graph(Entry::cuGraphLaunch), graph(Entry::cuGraphLaunch_ptsz)),
            (0, CU_STREAM_PER_THREAD)
        );
    }

    #[test]
    fn null_pointers_are_left_to_the_driver() {
        for entry in [Entry::cuLaunchKernelEx, Entry::cuLaunchCooperativeKernelMultiDevice] {
            // SAFETY: null is allowed.
            assert_eq!(unsafe { Launch::of(entry, &[0; 6], &[0; 6]) }, None);
        }
    }
}

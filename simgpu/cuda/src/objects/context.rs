//! Contexts: primary and explicit, and each thread's stack of them.

use std::{
    cell::RefCell,
    mem::ManuallyDrop,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
};

use gpupool_nvidia::cuda::{
    CU_FUNC_CACHE_PREFER_NONE, CU_LIMIT_MALLOC_HEAP_SIZE, CU_LIMIT_PERSISTING_L2_CACHE_SIZE,
    CU_LIMIT_PRINTF_FIFO_SIZE, CU_LIMIT_STACK_SIZE, CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE,
};
use simgpu_device::Card;

use crate::{
    device::{
        engine::{Engine, engine},
        initialised::initialised,
    },
    error::{CuError, CuResult},
    handles::{Handle, Registry, fresh},
    memory::space::Owner,
    sync::lock,
};

/// How many of `CUlimit`'s limits are kept, each in the place of its value.
pub(crate) const LIMITS: usize = CU_LIMIT_PERSISTING_L2_CACHE_SIZE as usize + 1;
/// What they are at first, in bytes: stack of a thread, `printf` buffer, heap; nesting and pending launches in numbers;
/// L2 fetch size and persisting L2 in bytes.
const FIRST_LIMITS: [usize; LIMITS] = [1024, 1 << 20, 8 << 20, 2, 2048, 64, 0];
/// The places of those that take memory.
pub(crate) const STACK_SIZE: usize = CU_LIMIT_STACK_SIZE as usize;
const PRINTF_SIZE: usize = CU_LIMIT_PRINTF_FIFO_SIZE as usize;
const HEAP_SIZE: usize = CU_LIMIT_MALLOC_HEAP_SIZE as usize;
/// What limits take of the card comes in multiples of this many bytes.
const LIMIT_STEP: u64 = 2 << 20;

/// A `CUcontext`, primary or not.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) handle: Handle,
    /// Its device, as a CUDA ordinal.
    pub(crate) device: i32,
    pub(crate) card: Card,
    /// How often the card had been lost when the context was made.
    losses: u32,
    pub(crate) primary: bool,
    pub(crate) flags: AtomicU32,
    /// What `cuCtxGetId` answers; not even a primary context gets it twice.
    pub(crate) id: u64,
    pub(crate) api_version: u32,
    limits: Mutex<[usize; LIMITS]>,
    pub(crate) cache_config: AtomicU32,
    pub(crate) shared_config: AtomicU32,
}

/// A device's primary context: the handle stays, the context behind it comes and goes.
#[derive(Debug, Default)]
pub(crate) struct PrimaryContext {
    pub(crate) handle: Handle,
    pub(crate) users: u32,
    pub(crate) flags: u32,
}

pub(crate) static CONTEXTS: Registry<Context> = Registry::new();
static PRIMARIES: Mutex<Vec<PrimaryContext>> = Mutex::new(Vec::new());
static IDS: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// The thread's stack of contexts. It is never dropped: programs call the driver while the thread ends.
    static STACK: ManuallyDrop<RefCell<Vec<Handle>>> = const { ManuallyDrop::new(RefCell::new(Vec::new())) };
}

/// Runs `work` on the calling thread's stack of contexts; the last one is current.
pub(crate) fn with_stack<T>(work: impl FnOnce(&mut Vec<Handle>) -> T) -> T {
    STACK.with(|stack| work(&mut stack.borrow_mut()))
}

/// The handle of the calling thread's current context.
pub(crate) fn current_handle() -> Option<Handle> {
    with_stack(|stack| stack.last().copied()).filter(|&handle| handle != 0)
}

/// The calling thread's current context, usable or not. Fails where there is none or it is gone.
pub(crate) fn current_unchecked() -> CuResult<Arc<Context>> {
    let handle = current_handle().ok_or(CuError::INVALID_CONTEXT)?;
    CONTEXTS.find(handle).ok_or(CuError::CONTEXT_IS_DESTROYED)
}

/// The calling thread's current context. Fails where there is none, it is gone, or its card is lost.
pub(crate) fn current() -> CuResult<Arc<Context>> {
    let context = current_unchecked()?;
    context.check()?;
    Ok(context)
}

/// The context behind a handle that the program passed. Fails when there is none or its card is lost.
pub(crate) fn context(handle: Handle) -> CuResult<Arc<Context>> {
    let context = CONTEXTS.find(handle).ok_or(CuError::INVALID_CONTEXT)?;
    context.check()?;
    Ok(context)
}

impl Context {
    /// Makes a context of `device` under `handle` and takes its memory from the card.
    pub(crate) fn create(
        handle: Handle,
        device: i32,
        flags: u32,
        api_version: u32,
        primary: bool,
    ) -> CuResult<Arc<Self>> {
        let state = initialised()?;
        let card = state.card(device)?;
        let losses = card.losses();
        state.process()?.open_context(card.index())?;
        let context = Arc::new(Self {
            handle,
            device,
            card,
            losses,
            primary,
            flags: AtomicU32::new(flags),
            id: IDS.fetch_add(1, Relaxed),
            api_version,
            limits: Mutex::new(FIRST_LIMITS),
            cache_config: AtomicU32::new(CU_FUNC_CACHE_PREFER_NONE),
            shared_config: AtomicU32::new(CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE),
        });
        CONTEXTS.put(handle, Arc::clone(&context));
        Ok(context)
    }

    /// The value of a limit.
    pub(crate) fn limit(&self, place: usize) -> usize {
        lock(&self.limits)[place]
    }

    /// Sets a limit. Some take memory of the card; where that is not there nothing changes.
    pub(crate) fn set_limit(&self, place: usize, value: usize) -> CuResult {
        let process = initialised()?.process()?;
        let mut limits = lock(&self.limits);
        let mut new = *limits;
        new[place] = value;
        let (before, after) = (self.memory_of(&limits), self.memory_of(&new));
        if after > before {
            process.take_memory(self.card.index(), after - before)?;
        } else {
            process.give_memory(self.card.index(), before - after);
        }
        *limits = new;
        Ok(())
    }

    /// What limits above their first values take of the card in bytes, besides the context itself: a stack for every
    /// thread that can be resident, the buffer of `printf`, the heap of kernels.
    fn memory_of(&self, limits: &[usize; LIMITS]) -> u64 {
        let model = self.card.model();
        let threads = u64::from(model.multiprocessors) * u64::from(model.threads_per_multiprocessor);
        let above = |place: usize| (limits[place] as u64).saturating_sub(FIRST_LIMITS[place] as u64);
        let stacks = above(STACK_SIZE).saturating_mul(threads);
        let all = stacks.saturating_add(above(PRINTF_SIZE)).saturating_add(above(HEAP_SIZE));
        all.checked_next_multiple_of(LIMIT_STEP).unwrap_or(u64::MAX)
    }

    /// Gives back what the context and its raised limits took of the card.
    pub(crate) fn give_memory_back(&self) -> CuResult {
        let process = initialised()?.process()?;
        let extra = self.memory_of(&lock(&self.limits));
        process.give_memory(self.card.index(), extra);
        process.close_context(self.card.index());
        Ok(())
    }

    /// The owner of what is allocated in this context.
    pub(crate) const fn owner(&self) -> Owner {
        Owner { context: self.handle, device: self.device, card: self.card.index() }
    }

    /// Fails when the card is lost, or was since the context was made.
    pub(crate) fn check(&self) -> CuResult {
        if self.card.lost() || self.card.losses() != self.losses {
            return Err(CuError::DEVICE_UNAVAILABLE);
        }
        Ok(())
    }

    /// The queue of its card.
    pub(crate) fn engine(&self) -> &'static Engine {
        engine(self.card.index())
    }
}

/// Runs `work` on the primary context of `device`; fails where there is no such device.
pub(crate) fn with_primary<T>(
    device: i32,
    work: impl FnOnce(&mut PrimaryContext) -> CuResult<T>,
) -> CuResult<T> {
    initialised()?.card(device)?;
    let place = usize::try_from(device).map_err(|_| CuError::INVALID_DEVICE)?;
    let mut primaries = lock(&PRIMARIES);
    while primaries.len() <= place {
        primaries.push(PrimaryContext { handle: fresh(), ..PrimaryContext::default() });
    }
    work(&mut primaries[place])
}

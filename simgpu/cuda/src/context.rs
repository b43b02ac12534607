//! Contexts: primary and explicit, and each thread's stack of them.

use std::{
    cell::RefCell,
    mem::ManuallyDrop,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
};

use simgpu_device::Card;

use crate::{
    driver::ready,
    engine::{Engine, engine},
    error::{CuError, Res},
    handles::{Handle, Registry, fresh},
    life,
    sync::lock,
};

/// How many of `CUlimit`'s numbers are kept.
pub(crate) const LIMITS: usize = 7;

/// A context.
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
    pub(crate) limits: Mutex<[usize; LIMITS]>,
    pub(crate) cache_config: AtomicU32,
    pub(crate) shared_config: AtomicU32,
}

/// A device's primary context: the handle stays, the context behind it comes and goes.
#[derive(Debug, Default)]
pub(crate) struct Primary {
    pub(crate) handle: Handle,
    pub(crate) users: u32,
    pub(crate) flags: u32,
}

pub(crate) static CONTEXTS: Registry<Context> = Registry::new();
static PRIMARIES: Mutex<Vec<Primary>> = Mutex::new(Vec::new());
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
pub(crate) fn current_unchecked() -> Res<Arc<Context>> {
    let handle = current_handle().ok_or(CuError::INVALID_CONTEXT)?;
    CONTEXTS.find(handle).ok_or(CuError::CONTEXT_IS_DESTROYED)
}

/// The calling thread's current context. Fails where there is none, it is gone, or its card is lost.
pub(crate) fn current() -> Res<Arc<Context>> {
    let context = current_unchecked()?;
    context.check()?;
    Ok(context)
}

/// The context behind a handle that the program passed. Fails when there is none or its card is lost.
pub(crate) fn context(handle: Handle) -> Res<Arc<Context>> {
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
    ) -> Res<Arc<Self>> {
        let ready = ready()?;
        let card = ready.card(device)?;
        let losses = card.losses();
        ready.process()?.open_context(card.index())?;
        let context = Arc::new(Self {
            handle,
            device,
            card,
            losses,
            primary,
            flags: AtomicU32::new(flags),
            id: IDS.fetch_add(1, Relaxed),
            api_version,
            // Stack, printf buffer, heap, nesting, pending launches, L2 fetch size, persisting L2.
            limits: Mutex::new([1024, 1 << 20, 8 << 20, 2, 2048, 64, 0]),
            cache_config: AtomicU32::new(0),
            shared_config: AtomicU32::new(1),
        });
        CONTEXTS.put(handle, Arc::clone(&context));
        Ok(context)
    }

    /// Ends a context: its work is waited for, everything that belongs to it goes, its memory is given back.
    pub(crate) fn destroy(handle: Handle) -> Res {
        let context = CONTEXTS.remove(handle).map_err(|_| CuError::INVALID_CONTEXT)?;
        if context.check().is_ok() {
            let _ = context.engine().end().wait();
        }
        life::end_of_context(&context);
        ready()?.process()?.close_context(context.card.index());
        Ok(())
    }

    /// Fails when the card is lost, or was since the context was made.
    pub(crate) fn check(&self) -> Res {
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
pub(crate) fn with_primary<T>(device: i32, work: impl FnOnce(&mut Primary) -> Res<T>) -> Res<T> {
    ready()?.card(device)?;
    let place = usize::try_from(device).map_err(|_| CuError::INVALID_DEVICE)?;
    let mut primaries = lock(&PRIMARIES);
    while primaries.len() <= place {
        primaries.push(Primary { handle: fresh(), ..Primary::default() });
    }
    work(&mut primaries[place])
}

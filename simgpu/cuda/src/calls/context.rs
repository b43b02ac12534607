//! The driver's calls about contexts.

use std::{ffi::c_void, sync::atomic::Ordering::Relaxed};

use gpupool_nvidia::cuda::{
    CU_CTX_FLAGS_MASK, CU_CTX_MAP_HOST, CU_CTX_SCHED_AUTO, CU_CTX_SCHED_BLOCKING_SYNC, CU_CTX_SCHED_MASK,
    CU_CTX_SCHED_SPIN, CU_CTX_SCHED_YIELD, CU_FUNC_CACHE_PREFER_EQUAL,
    CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE,
};

use crate::{
    calls::entry::{entry, put, put_if_wanted},
    device::{environment::version, initialised::initialised},
    error::{CuError, CuResult},
    handles::{Handle, fresh},
    memory::pool,
    objects::{
        capture,
        context::{
            CONTEXTS, Context, LIMITS, STACK_SIZE, context, current, current_handle, current_unchecked,
            with_primary, with_stack,
        },
        context_teardown,
        stream::GREATEST_PRIORITY,
    },
};

/// Versions of the context interface: of `cuCtxCreate`, and of `cuCtxCreate_v2` and all later ones.
const FIRST_API: u32 = 3010;
pub(super) const SECOND_API: u32 = 3020;

/// Most bytes of stack that a thread can have.
const LARGEST_STACK: usize = 512 << 10;

fn check_flags(flags: u32) -> CuResult {
    if flags & !CU_CTX_FLAGS_MASK != 0
        || !matches!(
            flags & CU_CTX_SCHED_MASK,
            CU_CTX_SCHED_AUTO | CU_CTX_SCHED_SPIN | CU_CTX_SCHED_YIELD | CU_CTX_SCHED_BLOCKING_SYNC
        )
    {
        return Err(CuError::INVALID_VALUE);
    }
    Ok(())
}

/// Makes a context, which becomes current.
///
/// # Safety
/// `out` is null or valid for a write; it need not be aligned.
unsafe fn create(out: *mut Handle, flags: u32, device: i32, api_version: u32) -> CuResult {
    if out.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    check_flags(flags)?;
    let context = Context::create(fresh(), device, flags | CU_CTX_MAP_HOST, api_version, false)?;
    with_stack(|stack| stack.push(context.handle));
    // SAFETY: by this function's contract.
    unsafe { put(out, context.handle) }
}

fn destroy(handle: Handle) -> CuResult {
    if CONTEXTS.find(handle).is_none_or(|context| context.primary) {
        return Err(CuError::INVALID_CONTEXT);
    }
    context_teardown::destroy(handle)?;
    with_stack(|stack| {
        if stack.last() == Some(&handle) {
            stack.pop();
        }
    });
    Ok(())
}

fn push(handle: Handle) -> CuResult {
    context(handle)?;
    with_stack(|stack| stack.push(handle));
    Ok(())
}

/// Takes the current context off.
///
/// # Safety
/// `out` is null or valid for a write; it need not be aligned.
unsafe fn pop(out: *mut Handle) -> CuResult {
    let top = with_stack(Vec::pop).filter(|&top| top != 0).ok_or(CuError::INVALID_CONTEXT)?;
    // SAFETY: by this function's contract.
    unsafe { put_if_wanted(out, top) };
    Ok(())
}

/// Puts `handle` in the place of the current context; 0 takes the current one off.
fn set_current(handle: Handle) -> CuResult {
    if handle == 0 {
        with_stack(Vec::pop);
        return Ok(());
    }
    CONTEXTS.find(handle).ok_or(CuError::INVALID_CONTEXT)?;
    with_stack(|stack| {
        stack.pop();
        stack.push(handle);
    });
    Ok(())
}

fn retain(device: i32) -> CuResult<Handle> {
    with_primary(device, |primary| {
        if primary.users == 0 {
            let flags = primary.flags | CU_CTX_MAP_HOST;
            Context::create(primary.handle, device, flags, version_number(), true)?;
        } else {
            context(primary.handle)?;
        }
        primary.users += 1;
        Ok(primary.handle)
    })
}

fn release(device: i32) -> CuResult {
    with_primary(device, |primary| {
        match primary.users {
            0 => return Err(CuError::INVALID_CONTEXT),
            1 => context_teardown::destroy(primary.handle)?,
            _ => {}
        }
        primary.users -= 1;
        Ok(())
    })
}

/// Ends the primary context whoever uses it; those who retained it still have to release it in real drivers, where
/// that then fails as it does here.
fn reset(device: i32) -> CuResult {
    with_primary(device, |primary| {
        if primary.users > 0 {
            context_teardown::destroy(primary.handle)?;
            primary.users = 0;
        }
        Ok(())
    })
}

fn set_primary_flags(device: i32, flags: u32) -> CuResult {
    check_flags(flags)?;
    with_primary(device, |primary| {
        primary.flags = flags;
        if let Some(context) = CONTEXTS.find(primary.handle) {
            context.flags.store(flags | CU_CTX_MAP_HOST, Relaxed);
        }
        Ok(())
    })
}

/// What `cuCtxGetApiVersion` answers: the newest context interface, whatever the driver's version.
fn version_number() -> u32 {
    if version() >= 12000 { SECOND_API } else { FIRST_API }
}

fn limit_place(limit: i32) -> CuResult<usize> {
    usize::try_from(limit).ok().filter(|&limit| limit < LIMITS).ok_or(CuError::UNSUPPORTED_LIMIT)
}

fn synchronize(context: &Context) -> CuResult {
    capture::forbid_all()?;
    context.engine().end().wait()?;
    pool::trim_at_synchronization();
    Ok(())
}

/// The context that a call is about: the one it names, or with 0 the current one.
fn named_or_current(handle: Handle) -> CuResult<std::sync::Arc<Context>> {
    if handle == 0 { current() } else { context(handle) }
}

entry! {
    cuDevicePrimaryCtxRetain(out: *mut Handle, device: i32) {
        put(out, 0)?;
        put(out, retain(device)?)
    }
    cuDevicePrimaryCtxRelease(device: i32) { release(device) }
    cuDevicePrimaryCtxRelease_v2(device: i32) { release(device) }
    cuDevicePrimaryCtxReset(device: i32) { reset(device) }
    cuDevicePrimaryCtxReset_v2(device: i32) { reset(device) }
    cuDevicePrimaryCtxSetFlags(device: i32, flags: u32) { set_primary_flags(device, flags) }
    cuDevicePrimaryCtxSetFlags_v2(device: i32, flags: u32) { set_primary_flags(device, flags) }
    cuDevicePrimaryCtxGetState(device: i32, flags: *mut u32, active: *mut i32) {
        let (set, users) = with_primary(device, |primary| Ok((primary.flags, primary.users)))?;
        put(flags, set)?;
        put(active, i32::from(users > 0))
    }
    cuCtxCreate(out: *mut Handle, flags: u32, device: i32) { create(out, flags, device, FIRST_API) }
    cuCtxCreate_v2(out: *mut Handle, flags: u32, device: i32) { create(out, flags, device, SECOND_API) }
    cuCtxCreate_v3(out: *mut Handle, _affinity: *const c_void, count: i32, flags: u32, device: i32) {
        if count != 0 {
            return Err(CuError::UNSUPPORTED_EXEC_AFFINITY);
        }
        create(out, flags, device, SECOND_API)
    }
    cuCtxCreate_v4(out: *mut Handle, _parameters: *const c_void, flags: u32, device: i32) {
        create(out, flags, device, SECOND_API)
    }
    cuCtxDestroy(handle: Handle) { destroy(handle) }
    cuCtxDestroy_v2(handle: Handle) { destroy(handle) }
    cuCtxAttach(out: *mut Handle, flags: u32) {
        if flags != 0 {
            return Err(CuError::INVALID_VALUE);
        }
        put(out, current()?.handle)
    }
    cuCtxDetach(handle: Handle) {
        context(handle)?;
        Ok(())
    }
    cuCtxPushCurrent(handle: Handle) { push(handle) }
    cuCtxPushCurrent_v2(handle: Handle) { push(handle) }
    cuCtxPopCurrent(out: *mut Handle) { pop(out) }
    cuCtxPopCurrent_v2(out: *mut Handle) { pop(out) }
    cuCtxSetCurrent(handle: Handle) { set_current(handle) }
    cuCtxGetCurrent(out: *mut Handle) {
        put(out, current_handle().unwrap_or_default())
    }
    cuCtxGetDevice(device: *mut i32) {
        put(device, current_unchecked()?.device)
    }
    cuCtxGetDevice_v2(device: *mut i32, handle: Handle) {
        put(device, named_or_current(handle)?.device)
    }
    cuCtxGetFlags(flags: *mut u32) {
        put(flags, current()?.flags.load(Relaxed))
    }
    cuCtxSetFlags(flags: u32) {
        check_flags(flags)?;
        current()?.flags.store(flags | CU_CTX_MAP_HOST, Relaxed);
        Ok(())
    }
    cuCtxGetId(handle: Handle, id: *mut u64) {
        put(id, named_or_current(handle)?.id)
    }
    cuCtxSynchronize() { synchronize(&*current()?) }
    cuCtxSynchronize_v2(handle: Handle) { synchronize(&*named_or_current(handle)?) }
    cuCtxGetApiVersion(handle: Handle, version: *mut u32) {
        put(version, named_or_current(handle)?.api_version)
    }
    cuCtxGetCacheConfig(config: *mut u32) {
        put(config, current()?.cache_config.load(Relaxed))
    }
    cuCtxSetCacheConfig(config: u32) {
        if config > CU_FUNC_CACHE_PREFER_EQUAL {
            return Err(CuError::INVALID_VALUE);
        }
        current()?.cache_config.store(config, Relaxed);
        Ok(())
    }
    cuCtxGetSharedMemConfig(config: *mut u32) {
        put(config, current()?.shared_config.load(Relaxed))
    }
    cuCtxSetSharedMemConfig(config: u32) {
        if config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE {
            return Err(CuError::INVALID_VALUE);
        }
        current()?.shared_config.store(config, Relaxed);
        Ok(())
    }
    cuCtxGetLimit(value: *mut usize, limit: i32) {
        put(value, current()?.limit(limit_place(limit)?))
    }
    cuCtxSetLimit(limit: i32, value: usize) {
        let (context, place) = (current()?, limit_place(limit)?);
        if place == STACK_SIZE && value > LARGEST_STACK {
            return Err(CuError::INVALID_VALUE);
        }
        context.set_limit(place, value)
    }
    cuCtxGetStreamPriorityRange(least: *mut i32, greatest: *mut i32) {
        current()?;
        put_if_wanted(least, 0);
        put_if_wanted(greatest, GREATEST_PRIORITY);
        Ok(())
    }
    cuCtxResetPersistingL2Cache() {
        current()?;
        Ok(())
    }
    cuCtxGetExecAffinity(_affinity: *mut c_void, _kind: i32) {
        initialised()?;
        Err(CuError::UNSUPPORTED_EXEC_AFFINITY)
    }
}

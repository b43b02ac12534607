//! The driver's calls about streams.

use std::ffi::c_void;

use crate::{
    calls::entry::{entry, put, put_if_wanted},
    device::host_call::HostCall,
    error::{CuError, CuResult},
    handles::Handle,
    memory::{pool, space},
    objects::{
        stream::{LEGACY, STREAMS, create, legacy, own, target},
        stream_work::StreamWork,
    },
};

/// `CUstreamCallback`.
type Callback = unsafe extern "C" fn(Handle, i32, *mut c_void);
/// `CUhostFn`.
type HostFunction = unsafe extern "C" fn(*mut c_void);

/// A stream callback on its way to its turn.
struct Pending {
    callback: Callback,
    stream: Handle,
    argument: *mut c_void,
}

/// Calls a stream callback: it takes the stream and a status besides the program's argument.
///
/// # Safety
/// `pending` is a [`Pending`] that [`add_callback`] boxed, and nobody else's.
unsafe extern "C" fn call_back(pending: *mut c_void) {
    // SAFETY: made by `add_callback` for this one call.
    let pending = unsafe { Box::from_raw(pending.cast::<Pending>()) };
    // SAFETY: the program gave the function for this call.
    unsafe { (pending.callback)(pending.stream, 0, pending.argument) };
}

fn add_callback(stream: Handle, callback: Option<Callback>, argument: *mut c_void) -> CuResult {
    let callback = callback.ok_or(CuError::INVALID_VALUE)?;
    let target = target(stream)?;
    target.not_capturing()?;
    let pending = Box::into_raw(Box::new(Pending { callback, stream, argument }));
    let submitted =
        target.submit(StreamWork::Call(HostCall { function: call_back, argument: pending.cast() }));
    if submitted.is_err() {
        // SAFETY: nobody else has it.
        drop(unsafe { Box::from_raw(pending) });
    }
    submitted
}

fn call(stream: Handle, function: Option<HostFunction>, argument: *mut c_void) -> CuResult {
    let function = function.ok_or(CuError::INVALID_VALUE)?;
    target(stream)?.submit(StreamWork::Call(HostCall { function, argument }))
}

fn destroy(stream: Handle) -> CuResult {
    STREAMS.remove(stream).map(|_| ())
}

fn synchronize(stream: Handle) -> CuResult {
    let target = target(stream)?;
    target.not_capturing()?;
    target.end().wait()?;
    pool::trim_at_synchronization();
    Ok(())
}

fn query(stream: Handle) -> CuResult {
    let target = target(stream)?;
    target.not_capturing()?;
    target.end().reached().map(|_| ())
}

/// Flags, priority and id of a stream; the default streams have none of the first two.
fn properties(stream: Handle) -> CuResult<(u32, i32, u64)> {
    let target = target(stream)?;
    Ok(match target.made() {
        Some(stream) => (stream.flags, stream.priority, stream.id),
        None => (0, 0, stream.max(LEGACY)),
    })
}

/// The kind of memory that may be attached to a stream.
fn attach(stream: Handle, pointer: u64) -> CuResult {
    target(stream)?;
    space::find(pointer)
        .filter(|found| found.kind == space::AllocationKind::Managed)
        .map(|_| ())
        .ok_or(CuError::INVALID_VALUE)
}

entry! {
    cuStreamCreate(out: *mut Handle, flags: u32) { put(out, create(flags, 0)?) }
    cuStreamCreateWithPriority(out: *mut Handle, flags: u32, priority: i32) { put(out, create(flags, priority)?) }
    cuStreamDestroy(stream: Handle) { destroy(stream) }
    cuStreamDestroy_v2(stream: Handle) { destroy(stream) }
    cuStreamSynchronize(stream: Handle) { synchronize(legacy(stream)) }
    cuStreamSynchronize_ptsz(stream: Handle) { synchronize(own(stream)) }
    cuStreamQuery(stream: Handle) { query(legacy(stream)) }
    cuStreamQuery_ptsz(stream: Handle) { query(own(stream)) }
    cuStreamGetFlags(stream: Handle, flags: *mut u32) { put(flags, properties(stream)?.0) }
    cuStreamGetFlags_ptsz(stream: Handle, flags: *mut u32) { put(flags, properties(stream)?.0) }
    cuStreamGetPriority(stream: Handle, priority: *mut i32) { put(priority, properties(stream)?.1) }
    cuStreamGetPriority_ptsz(stream: Handle, priority: *mut i32) { put(priority, properties(stream)?.1) }
    cuStreamGetId(stream: Handle, id: *mut u64) { put(id, properties(legacy(stream))?.2) }
    cuStreamGetId_ptsz(stream: Handle, id: *mut u64) { put(id, properties(own(stream))?.2) }
    cuStreamGetCtx(stream: Handle, context: *mut Handle) { put(context, target(stream)?.context().handle) }
    cuStreamGetCtx_ptsz(stream: Handle, context: *mut Handle) { put(context, target(stream)?.context().handle) }
    cuStreamGetCtx_v2(stream: Handle, context: *mut Handle, green: *mut Handle) {
        put_if_wanted(green, 0);
        put(context, target(stream)?.context().handle)
    }
    cuStreamGetCtx_v2_ptsz(stream: Handle, context: *mut Handle, green: *mut Handle) {
        put_if_wanted(green, 0);
        put(context, target(stream)?.context().handle)
    }
    cuStreamGetDevice(stream: Handle, device: *mut i32) { put(device, target(stream)?.context().device) }
    cuStreamGetDevice_ptsz(stream: Handle, device: *mut i32) { put(device, target(stream)?.context().device) }
    cuStreamAddCallback(stream: Handle, callback: Option<Callback>, argument: *mut c_void, _flags: u32) {
        add_callback(legacy(stream), callback, argument)
    }
    cuStreamAddCallback_ptsz(stream: Handle, callback: Option<Callback>, argument: *mut c_void, _flags: u32) {
        add_callback(own(stream), callback, argument)
    }
    cuLaunchHostFunc(stream: Handle, function: Option<HostFunction>, argument: *mut c_void) {
        call(legacy(stream), function, argument)
    }
    cuLaunchHostFunc_ptsz(stream: Handle, function: Option<HostFunction>, argument: *mut c_void) {
        call(own(stream), function, argument)
    }
    cuLaunchHostFunc_v2(stream: Handle, function: Option<HostFunction>, argument: *mut c_void, _mode: u32) {
        call(legacy(stream), function, argument)
    }
    cuLaunchHostFunc_v2_ptsz(stream: Handle, function: Option<HostFunction>, argument: *mut c_void, _mode: u32) {
        call(own(stream), function, argument)
    }
    cuStreamAttachMemAsync(stream: Handle, pointer: u64, _length: usize, _flags: u32) { attach(stream, pointer) }
    cuStreamAttachMemAsync_ptsz(stream: Handle, pointer: u64, _length: usize, _flags: u32) { attach(stream, pointer) }
    cuStreamCopyAttributes(to: Handle, from: Handle) {
        target(to)?;
        target(from).map(|_| ())
    }
    cuStreamCopyAttributes_ptsz(to: Handle, from: Handle) {
        target(to)?;
        target(from).map(|_| ())
    }
}

//! The driver's calls about events.

use crate::{
    calls::entry::{entry, put},
    device::initialised::initialised,
    handles::Handle,
    memory::pool,
    objects::{
        capture,
        context::context,
        event::{EVENTS, create, elapsed, query, record, wait, wait_in},
        stream::{TargetStream, legacy, own, target},
    },
};

entry! {
    cuEventCreate(out: *mut Handle, flags: u32) { put(out, create(flags)?) }
    cuEventDestroy(event: Handle) { EVENTS.remove(event).map(|_| ()) }
    cuEventDestroy_v2(event: Handle) { EVENTS.remove(event).map(|_| ()) }
    cuEventRecord(event: Handle, stream: Handle) { record(event, &target(legacy(stream))?, 0) }
    cuEventRecord_ptsz(event: Handle, stream: Handle) { record(event, &target(own(stream))?, 0) }
    cuEventRecordWithFlags(event: Handle, stream: Handle, flags: u32) {
        record(event, &target(legacy(stream))?, flags)
    }
    cuEventRecordWithFlags_ptsz(event: Handle, stream: Handle, flags: u32) {
        record(event, &target(own(stream))?, flags)
    }
    cuEventQuery(event: Handle) {
        capture::forbid()?;
        query(event)
    }
    cuEventSynchronize(event: Handle) {
        if wait(event)? {
            pool::trim_at_synchronization();
        }
        Ok(())
    }
    cuEventElapsedTime(milliseconds: *mut f32, start: Handle, end: Handle) { put(milliseconds, elapsed(start, end)?) }
    cuEventElapsedTime_v2(milliseconds: *mut f32, start: Handle, end: Handle) {
        put(milliseconds, elapsed(start, end)?)
    }
    cuStreamWaitEvent(stream: Handle, event: Handle, flags: u32) { wait_in(&target(legacy(stream))?, event, flags) }
    cuStreamWaitEvent_ptsz(stream: Handle, event: Handle, flags: u32) { wait_in(&target(own(stream))?, event, flags) }
    cuCtxRecordEvent(handle: Handle, event: Handle) {
        initialised()?;
        record(event, &TargetStream::Default(context(handle)?, false), 0)
    }
    cuCtxWaitEvent(handle: Handle, event: Handle) {
        initialised()?;
        wait_in(&TargetStream::Default(context(handle)?, false), event, 0)
    }
}

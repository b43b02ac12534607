//! Events: moments in streams.

use std::sync::Mutex;

use simgpu_device::now_ns;

use crate::{
    context::{context, current},
    driver::ready,
    engine::Point,
    entry::{entry, put},
    error::{CuError, Res},
    handles::{Handle, Registry},
    pool,
    stream::{Target, legacy, own, target},
    sync::lock,
};

/// `CU_EVENT_DISABLE_TIMING`.
const NO_TIMING: u32 = 2;
/// `CU_EVENT_INTERPROCESS`.
const INTERPROCESS: u32 = 4;

/// What an event was last recorded for.
#[derive(Debug, Clone)]
enum Moment {
    Never,
    /// In a stream that was being captured: it happens when the graph runs.
    Captured(u64),
    Point(Point),
}

/// An event.
#[derive(Debug)]
pub(crate) struct Event {
    /// The context it belongs to.
    pub(crate) context: Handle,
    flags: u32,
    moment: Mutex<Moment>,
}

pub(crate) static EVENTS: Registry<Event> = Registry::new();

/// The event, if its card still works.
fn usable(event: Handle) -> Res<std::sync::Arc<Event>> {
    let event = EVENTS.get(event)?;
    context(event.context).map_err(|error| match error {
        CuError::INVALID_CONTEXT => CuError::CONTEXT_IS_DESTROYED,
        other => other,
    })?;
    Ok(event)
}

/// The capture that the stream is in.
fn capture_of(target: &Target) -> Option<u64> {
    target.made().and_then(|stream| lock(&stream.capture).as_ref().map(|capture| capture.id))
}

fn record(event: Handle, target: &Target) -> Res {
    let event = usable(event)?;
    if event.context != target.context().handle {
        return Err(CuError::INVALID_HANDLE);
    }
    *lock(&event.moment) = match capture_of(target) {
        Some(capture) => Moment::Captured(capture),
        // In an idle stream it happens when the card gets to what comes next.
        None => Moment::Point(match target.end() {
            Point::At(end) if end <= now_ns() => target.engine().mark(),
            later => later,
        }),
    };
    Ok(())
}

fn wait_in(target: &Target, event: Handle, flags: u32) -> Res {
    if flags > 1 {
        return Err(CuError::INVALID_VALUE);
    }
    let moment = lock(&usable(event)?.moment).clone();
    match (moment, capture_of(target)) {
        (Moment::Never, _) => Ok(()),
        // Work recorded from one stream has one order already.
        (Moment::Captured(recorded), Some(here)) if recorded == here => Ok(()),
        // Recording from several streams into one graph is not supported.
        (Moment::Captured(_), _) | (Moment::Point(_), Some(_)) => Err(CuError::STREAM_CAPTURE_UNSUPPORTED),
        (Moment::Point(Point::At(end)), None) if end <= now_ns() => Ok(()),
        (Moment::Point(point), None) => {
            target.engine().submit_wait(&point)?;
            target.reach(target.engine().end());
            Ok(())
        }
    }
}

fn moment(event: Handle) -> Res<Moment> {
    Ok(lock(&usable(event)?.moment).clone())
}

fn timed(event: Handle) -> Res<u64> {
    let event = usable(event)?;
    let moment = lock(&event.moment).clone();
    match moment {
        Moment::Point(point) if event.flags & NO_TIMING == 0 => point.reached(),
        _ => Err(CuError::INVALID_HANDLE),
    }
}

unsafe fn elapsed(milliseconds: *mut f32, start: Handle, end: Handle) -> Res {
    let (start, end) = (timed(start)?, timed(end)?);
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "the driver's answer is a float"
    )]
    let difference = ((i128::from(end) - i128::from(start)) as f64 / 1e6) as f32;
    // SAFETY: the caller's pointer, as the driver API has it.
    unsafe { put(milliseconds, difference) }
}

entry! {
    cuEventCreate(out: *mut Handle, flags: u32) {
        if flags > 7 || flags & (INTERPROCESS | NO_TIMING) == INTERPROCESS {
            return Err(CuError::INVALID_VALUE);
        }
        let context = current()?.handle;
        put(out, EVENTS.add(Event { context, flags, moment: Mutex::new(Moment::Never) }))
    }
    cuEventDestroy(event: Handle) { EVENTS.remove(event).map(|_| ()) }
    cuEventDestroy_v2(event: Handle) { EVENTS.remove(event).map(|_| ()) }
    cuEventRecord(event: Handle, stream: Handle) { record(event, &target(legacy(stream))?) }
    cuEventRecord_ptsz(event: Handle, stream: Handle) { record(event, &target(own(stream))?) }
    cuEventRecordWithFlags(event: Handle, stream: Handle, _flags: u32) { record(event, &target(legacy(stream))?) }
    cuEventRecordWithFlags_ptsz(event: Handle, stream: Handle, _flags: u32) { record(event, &target(own(stream))?) }
    cuEventQuery(event: Handle) {
        match moment(event)? {
            Moment::Never => Ok(()),
            Moment::Captured(_) => Err(CuError::CAPTURED_EVENT),
            Moment::Point(point) => point.reached().map(|_| ()),
        }
    }
    cuEventSynchronize(event: Handle) {
        match moment(event)? {
            Moment::Never => Ok(()),
            Moment::Captured(_) => Err(CuError::CAPTURED_EVENT),
            Moment::Point(point) => {
                point.wait()?;
                pool::settle();
                Ok(())
            }
        }
    }
    cuEventElapsedTime(milliseconds: *mut f32, start: Handle, end: Handle) { elapsed(milliseconds, start, end) }
    cuEventElapsedTime_v2(milliseconds: *mut f32, start: Handle, end: Handle) { elapsed(milliseconds, start, end) }
    cuStreamWaitEvent(stream: Handle, event: Handle, flags: u32) { wait_in(&target(legacy(stream))?, event, flags) }
    cuStreamWaitEvent_ptsz(stream: Handle, event: Handle, flags: u32) { wait_in(&target(own(stream))?, event, flags) }
    cuCtxRecordEvent(handle: Handle, event: Handle) {
        ready()?;
        record(event, &Target::Default(context(handle)?))
    }
    cuCtxWaitEvent(handle: Handle, event: Handle) {
        ready()?;
        wait_in(&Target::Default(context(handle)?), event, 0)
    }
}

//! Events: they mark a place in a stream's work, and have happened when the work before it is done.

use std::sync::{Arc, Mutex, OnceLock};

use gpupool_nvidia::cuda::{
    CU_EVENT_BLOCKING_SYNC, CU_EVENT_DISABLE_TIMING, CU_EVENT_INTERPROCESS, CU_EVENT_RECORD_EXTERNAL,
    CU_EVENT_WAIT_EXTERNAL,
};
use simgpu_device::{SegmentCharge, now_ns};

use crate::{
    device::{engine::Completion, host_call::HostCall, interprocess_time::InterprocessTime, segments},
    error::{CuError, CuResult},
    handles::{Handle, Registry},
    memory::ipc::{self, IpcHandle},
    objects::{
        capture::CaptureSequence,
        context::{context, current},
        graph::node::NodeWork,
        stream::TargetStream,
    },
    sync::lock,
};

/// What an event was last recorded for.
#[derive(Debug, Clone)]
enum EventState {
    Never,
    /// In a stream that was being captured, after these nodes: it happens when the graph runs.
    Captured(Arc<CaptureSequence>, Box<[Handle]>),
    Recorded(Completion),
}

/// A `CUevent`.
#[derive(Debug)]
pub(crate) struct Event {
    /// The context it belongs to.
    pub(crate) context: Handle,
    flags: u32,
    moment: Mutex<EventState>,
    /// Shared with other processes, where the event was made for that: when it happens.
    page: OnceLock<Arc<InterprocessTime>>,
}

pub(crate) static EVENTS: Registry<Event> = Registry::new();

/// The event, if its card still works.
fn usable(event: Handle) -> CuResult<Arc<Event>> {
    let event = EVENTS.get(event)?;
    context(event.context).map_err(|error| match error {
        CuError::INVALID_CONTEXT => CuError::CONTEXT_IS_DESTROYED,
        other => other,
    })?;
    Ok(event)
}

/// Records an event in a stream; with [`CU_EVENT_RECORD_EXTERNAL`] as a node of its own where the stream is captured.
pub(crate) fn record(handle: Handle, target: &TargetStream, flags: u32) -> CuResult {
    let event = usable(handle)?;
    if event.context != target.context().handle {
        return Err(CuError::INVALID_HANDLE);
    }
    if flags & !CU_EVENT_RECORD_EXTERNAL != 0 {
        return Err(CuError::INVALID_VALUE);
    }
    let mut capture = target.made().map(|stream| lock(&stream.capture));
    let moment = match capture.as_mut().and_then(|capture| capture.as_mut()) {
        Some(capture) if flags == CU_EVENT_RECORD_EXTERNAL => {
            return capture.record(NodeWork::Record(handle));
        }
        Some(capture) => EventState::Captured(Arc::clone(&capture.sequence), capture.dependencies.clone()),
        // In an idle stream it happens when the card gets to what comes next.
        None => EventState::Recorded(match target.end() {
            Completion::At(end) if end <= now_ns() => target.engine().mark(),
            later => later,
        }),
    };
    drop(capture);
    if let (Some(page), EventState::Recorded(completion)) = (event.page.get(), &moment)
        && let Some(call) = publish(page, completion)
    {
        target.engine().submit_call(call)?;
    }
    *lock(&event.moment) = moment;
    Ok(())
}

/// Tells other processes when an event of this one happens; gives a function to be called in the stream's order where
/// that is not known yet.
fn publish(page: &InterprocessTime, completion: &Completion) -> Option<HostCall> {
    if let Completion::At(end) = completion {
        page.set(*end);
        return None;
    }
    Some(page.set_when_called())
}

/// What another process needs to open an event that was made for it.
pub(crate) fn share(event: Handle) -> CuResult<IpcHandle> {
    let event = usable(event)?;
    if event.flags & CU_EVENT_INTERPROCESS == 0 {
        return Err(CuError::INVALID_VALUE);
    }
    if event.page.get().is_none() {
        let page = InterprocessTime::of(segments::create(0, 4096, SegmentCharge::Nobody)?)?;
        if let EventState::Recorded(completion) = &*lock(&event.moment) {
            page.set(completion.known()?);
        }
        let _ = event.page.set(Arc::new(page));
    }
    let page = event.page.get().ok_or(CuError::UNKNOWN)?;
    Ok(IpcHandle::new(ipc::EVENT, &page.segment, page.segment.bytes))
}

/// Opens an event of another process.
pub(crate) fn open(shared: &IpcHandle) -> CuResult<Handle> {
    let context = current()?.handle;
    let page = OnceLock::from(Arc::new(InterprocessTime::of(shared.segment(ipc::EVENT)?)?));
    let (flags, moment) = (CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING, Mutex::new(EventState::Never));
    Ok(EVENTS.add(Event { context, flags, moment, page }))
}

/// Lets a stream wait for an event; with [`CU_EVENT_WAIT_EXTERNAL`] as a node of its own where the stream is captured.
pub(crate) fn wait_in(target: &TargetStream, handle: Handle, flags: u32) -> CuResult {
    if flags & !CU_EVENT_WAIT_EXTERNAL != 0 {
        return Err(CuError::INVALID_VALUE);
    }
    let event = usable(handle)?;
    if let (true, Some(stream)) = (flags == CU_EVENT_WAIT_EXTERNAL, target.made())
        && let Some(capture) = lock(&stream.capture).as_mut()
    {
        return capture.record(NodeWork::Wait(handle));
    }
    match event.last() {
        EventState::Captured(sequence, dependencies) => {
            // The legacy default stream can't be part of a capture.
            let stream = target.made().ok_or(CuError::STREAM_CAPTURE_IMPLICIT)?;
            stream.join_capture(&sequence, &dependencies)
        }
        EventState::Never => Ok(()),
        EventState::Recorded(_) if target.is_capturing() => Err(CuError::STREAM_CAPTURE_ISOLATION),
        EventState::Recorded(Completion::At(end)) if end <= now_ns() => Ok(()),
        EventState::Recorded(completion) => {
            target.engine().submit_wait(&completion)?;
            target.reach(target.engine().end());
            Ok(())
        }
    }
}

impl Event {
    /// What it was last recorded for, by whomever.
    fn last(&self) -> EventState {
        match (&*lock(&self.moment), self.page.get()) {
            (captured @ EventState::Captured(..), _) => captured.clone(),
            (_, Some(page)) if page.is_told() => {
                EventState::Recorded(Completion::Interprocess(Arc::clone(page)))
            }
            (own, _) => own.clone(),
        }
    }
}

/// Every flag that an event can have.
const EVENT_FLAGS: u32 = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;

/// Makes an event in the current context.
pub(crate) fn create(flags: u32) -> CuResult<Handle> {
    if flags & !EVENT_FLAGS != 0
        || flags & (CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING) == CU_EVENT_INTERPROCESS
    {
        return Err(CuError::INVALID_VALUE);
    }
    let context = current()?.handle;
    let (moment, page) = (Mutex::new(EventState::Never), OnceLock::new());
    Ok(EVENTS.add(Event { context, flags, moment, page }))
}

/// Fails with `CUDA_ERROR_NOT_READY` where the event has not happened yet. One that was never recorded has.
pub(crate) fn query(event: Handle) -> CuResult {
    match usable(event)?.last() {
        EventState::Never => Ok(()),
        EventState::Captured(..) => Err(CuError::CAPTURED_EVENT),
        EventState::Recorded(completion) => completion.reached().map(|_| ()),
    }
}

/// Waits until the event has happened; gives whether there was anything to wait for.
pub(crate) fn wait(event: Handle) -> CuResult<bool> {
    match usable(event)?.last() {
        EventState::Never => Ok(false),
        EventState::Captured(..) => Err(CuError::CAPTURED_EVENT),
        EventState::Recorded(completion) => completion.wait().map(|_| true),
    }
}

fn timed(event: Handle) -> CuResult<u64> {
    let event = usable(event)?;
    let moment = lock(&event.moment).clone();
    match moment {
        EventState::Recorded(completion) if event.flags & CU_EVENT_DISABLE_TIMING == 0 => {
            completion.reached()
        }
        _ => Err(CuError::INVALID_HANDLE),
    }
}

/// Milliseconds between two events.
pub(crate) fn elapsed(start: Handle, end: Handle) -> CuResult<f32> {
    let (start, end) = (timed(start)?, timed(end)?);
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "the driver's answer is a float"
    )]
    let difference = ((i128::from(end) - i128::from(start)) as f64 / 1e6) as f32;
    Ok(difference)
}

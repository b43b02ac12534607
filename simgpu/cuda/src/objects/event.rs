//! Events: moments in streams.

use std::sync::{Arc, Mutex, OnceLock};

use simgpu_device::{Counted, now_ns};

use crate::{
    device::{engine::Point, host_call::HostCall, interprocess_time::Foreign, segments},
    error::{CuError, Res},
    handles::{Handle, Registry},
    memory::ipc::{self, Token},
    objects::{
        capture::Recording,
        context::{context, current},
        graph::node::Work,
        stream::Target,
    },
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
    /// In a stream that was being recorded, after these nodes: it happens when the graph runs.
    Captured(Arc<Recording>, Box<[Handle]>),
    Point(Point),
}

/// An event.
#[derive(Debug)]
pub(crate) struct Event {
    /// The context it belongs to.
    pub(crate) context: Handle,
    flags: u32,
    moment: Mutex<Moment>,
    /// Where other processes see the moment, or put it.
    page: OnceLock<Arc<Foreign>>,
}

pub(crate) static EVENTS: Registry<Event> = Registry::new();

/// The event, if its card still works.
fn usable(event: Handle) -> Res<Arc<Event>> {
    let event = EVENTS.get(event)?;
    context(event.context).map_err(|error| match error {
        CuError::INVALID_CONTEXT => CuError::CONTEXT_IS_DESTROYED,
        other => other,
    })?;
    Ok(event)
}

/// `CU_EVENT_RECORD_EXTERNAL`, `CU_EVENT_WAIT_EXTERNAL`: the event is no part of the recording, but a node of its own.
const EXTERNAL: u32 = 1;

/// Records an event in a stream.
pub(crate) fn record(handle: Handle, target: &Target, flags: u32) -> Res {
    let event = usable(handle)?;
    if event.context != target.context().handle {
        return Err(CuError::INVALID_HANDLE);
    }
    if flags & !EXTERNAL != 0 {
        return Err(CuError::INVALID_VALUE);
    }
    let mut capture = target.made().map(|stream| lock(&stream.capture));
    let moment = match capture.as_mut().and_then(|capture| capture.as_mut()) {
        Some(capture) if flags == EXTERNAL => return capture.record(Work::Record(handle)),
        Some(capture) => Moment::Captured(Arc::clone(&capture.recording), capture.tips.clone()),
        // In an idle stream it happens when the card gets to what comes next.
        None => Moment::Point(match target.end() {
            Point::At(end) if end <= now_ns() => target.engine().mark(),
            later => later,
        }),
    };
    drop(capture);
    if let (Some(page), Moment::Point(point)) = (event.page.get(), &moment)
        && let Some(call) = publish(page, point)
    {
        target.engine().submit_call(call)?;
    }
    *lock(&event.moment) = moment;
    Ok(())
}

/// Tells other processes when a moment of this one is; gives what has to be called in its turn where that is not known yet.
fn publish(page: &Foreign, point: &Point) -> Option<HostCall> {
    if let Point::At(end) = point {
        page.set(*end);
        return None;
    }
    Some(page.set_when_called())
}

/// What another process needs to open an event that was made for it.
pub(crate) fn share(event: Handle) -> Res<Token> {
    let event = usable(event)?;
    if event.flags & INTERPROCESS == 0 {
        return Err(CuError::INVALID_VALUE);
    }
    if event.page.get().is_none() {
        let page = Foreign::of(segments::create(0, 4096, Counted::Nowhere)?)?;
        if let Moment::Point(point) = &*lock(&event.moment) {
            page.set(point.known()?);
        }
        let _ = event.page.set(Arc::new(page));
    }
    let page = event.page.get().ok_or(CuError::UNKNOWN)?;
    Ok(Token::new(ipc::EVENT, &page.segment, page.segment.bytes))
}

/// Opens an event of another process.
pub(crate) fn open(token: &Token) -> Res<Handle> {
    let context = current()?.handle;
    let page = OnceLock::from(Arc::new(Foreign::of(token.segment(ipc::EVENT)?)?));
    let (flags, moment) = (INTERPROCESS | NO_TIMING, Mutex::new(Moment::Never));
    Ok(EVENTS.add(Event { context, flags, moment, page }))
}

/// Lets a stream wait for an event.
pub(crate) fn wait_in(target: &Target, handle: Handle, flags: u32) -> Res {
    if flags & !EXTERNAL != 0 {
        return Err(CuError::INVALID_VALUE);
    }
    let event = usable(handle)?;
    if let (true, Some(stream)) = (flags == EXTERNAL, target.made())
        && let Some(capture) = lock(&stream.capture).as_mut()
    {
        return capture.record(Work::Wait(handle));
    }
    match event.last() {
        Moment::Captured(recording, tips) => {
            // The legacy default stream can't be part of a recording.
            let stream = target.made().ok_or(CuError::STREAM_CAPTURE_IMPLICIT)?;
            stream.join_capture(&recording, &tips)
        }
        Moment::Never => Ok(()),
        Moment::Point(_) if target.is_capturing() => Err(CuError::STREAM_CAPTURE_ISOLATION),
        Moment::Point(Point::At(end)) if end <= now_ns() => Ok(()),
        Moment::Point(point) => {
            target.engine().submit_wait(&point)?;
            target.reach(target.engine().end());
            Ok(())
        }
    }
}

impl Event {
    /// What it was last recorded for, by whomever.
    fn last(&self) -> Moment {
        match (&*lock(&self.moment), self.page.get()) {
            (captured @ Moment::Captured(..), _) => captured.clone(),
            (_, Some(page)) if page.is_told() => Moment::Point(Point::Foreign(Arc::clone(page))),
            (own, _) => own.clone(),
        }
    }
}

/// Makes an event in the current context.
pub(crate) fn create(flags: u32) -> Res<Handle> {
    if flags > 7 || flags & (INTERPROCESS | NO_TIMING) == INTERPROCESS {
        return Err(CuError::INVALID_VALUE);
    }
    let context = current()?.handle;
    let (moment, page) = (Mutex::new(Moment::Never), OnceLock::new());
    Ok(EVENTS.add(Event { context, flags, moment, page }))
}

/// Fails with `CUDA_ERROR_NOT_READY` where the event has not happened yet. One that was never recorded has.
pub(crate) fn query(event: Handle) -> Res {
    match usable(event)?.last() {
        Moment::Never => Ok(()),
        Moment::Captured(..) => Err(CuError::CAPTURED_EVENT),
        Moment::Point(point) => point.reached().map(|_| ()),
    }
}

/// Waits until the event has happened; gives whether there was anything to wait for.
pub(crate) fn wait(event: Handle) -> Res<bool> {
    match usable(event)?.last() {
        Moment::Never => Ok(false),
        Moment::Captured(..) => Err(CuError::CAPTURED_EVENT),
        Moment::Point(point) => point.wait().map(|_| true),
    }
}

fn timed(event: Handle) -> Res<u64> {
    let event = usable(event)?;
    let moment = lock(&event.moment).clone();
    match moment {
        Moment::Point(point) if event.flags & NO_TIMING == 0 => point.reached(),
        _ => Err(CuError::INVALID_HANDLE),
    }
}

/// Milliseconds between two events.
pub(crate) fn elapsed(start: Handle, end: Handle) -> Res<f32> {
    let (start, end) = (timed(start)?, timed(end)?);
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "the driver's answer is a float"
    )]
    let difference = ((i128::from(end) - i128::from(start)) as f64 / 1e6) as f32;
    Ok(difference)
}

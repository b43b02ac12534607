//! Streams: work submitted to one is done in that order; here is where it ends, and whether it is being captured.

mod capturing;

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use gpupool_nvidia::cuda::{CU_STREAM_LEGACY, CU_STREAM_NON_BLOCKING, CU_STREAM_PER_THREAD};

use crate::{
    device::engine::{Completion, Engine},
    error::{CuError, CuResult},
    handles::{Handle, Registry},
    objects::{
        capture::{self, StreamCapture},
        context::{Context, context, current},
        stream_work::StreamWork,
    },
    sync::lock,
};

/// The handles that mean a default stream: the legacy one and the thread's own.
pub(crate) const LEGACY: Handle = CU_STREAM_LEGACY;
pub(crate) const PER_THREAD: Handle = CU_STREAM_PER_THREAD;

/// The stream that a handle means in the plain variant of a call: 0 is the legacy default stream.
pub(crate) const fn legacy(stream: Handle) -> Handle {
    if stream == 0 { LEGACY } else { stream }
}

/// The stream that a handle means in the `_ptsz` variant of a call: 0 is the thread's own default stream.
pub(crate) const fn own(stream: Handle) -> Handle {
    if stream == 0 { PER_THREAD } else { stream }
}

/// A stream that the program made; the default streams are none.
#[derive(Debug)]
pub(crate) struct Stream {
    /// The context it belongs to.
    pub(crate) context: Handle,
    pub(crate) flags: u32,
    pub(crate) priority: i32,
    pub(crate) id: u64,
    /// When everything submitted so far is done.
    last: Mutex<Completion>,
    /// The graph that is being captured instead of doing the work.
    pub(crate) capture: Mutex<Option<StreamCapture>>,
}

pub(crate) static STREAMS: Registry<Stream> = Registry::new();
static IDS: AtomicU64 = AtomicU64::new(3);

/// A stream as a call names it.
#[derive(Debug)]
pub(crate) enum TargetStream {
    /// A default stream of the current context, and whether it is the legacy one. Both wait for all of the context's
    /// work: those who use the other can't tell.
    Default(Arc<Context>, bool),
    /// One that the program made.
    Made(Arc<Stream>, Arc<Context>),
}

/// The priority of the streams that come first; 0 is that of the last.
pub(crate) const GREATEST_PRIORITY: i32 = -5;

/// Makes a stream in the current context.
pub(crate) fn create(flags: u32, priority: i32) -> CuResult<Handle> {
    create_in(&*current()?, flags, priority)
}

/// Makes a stream in a context.
pub(crate) fn create_in(context: &Context, flags: u32, priority: i32) -> CuResult<Handle> {
    if flags & !CU_STREAM_NON_BLOCKING != 0 {
        return Err(CuError::INVALID_VALUE);
    }
    let context = context.handle;
    let (id, last) = (IDS.fetch_add(1, Relaxed), Mutex::new(Completion::At(0)));
    Ok(STREAMS.add(Stream {
        context,
        flags,
        priority: priority.clamp(GREATEST_PRIORITY, 0),
        id,
        last,
        capture: Mutex::new(None),
    }))
}

/// The stream behind a handle. Fails where there is none, or where a default stream has no context.
pub(crate) fn target(handle: Handle) -> CuResult<TargetStream> {
    if handle <= PER_THREAD {
        return Ok(TargetStream::Default(current()?, handle == LEGACY));
    }
    let stream = STREAMS.get(handle)?;
    let context = context(stream.context).map_err(|error| match error {
        CuError::INVALID_CONTEXT => CuError::CONTEXT_IS_DESTROYED,
        other => other,
    })?;
    Ok(TargetStream::Made(stream, context))
}

impl TargetStream {
    pub(crate) const fn context(&self) -> &Arc<Context> {
        match self {
            Self::Default(context, _) | Self::Made(_, context) => context,
        }
    }

    pub(crate) fn engine(&self) -> &'static Engine {
        self.context().engine()
    }

    pub(crate) const fn made(&self) -> Option<&Arc<Stream>> {
        match self {
            Self::Default(..) => None,
            Self::Made(stream, _) => Some(stream),
        }
    }

    /// Does a piece of work in the stream's order, or records it while the stream is being captured.
    pub(crate) fn submit(&self, job: StreamWork) -> CuResult {
        if let Some(stream) = self.made()
            && let Some(capture) = lock(&stream.capture).as_mut()
        {
            return capture.record(job.into());
        }
        self.perform(&job)
    }

    /// Does a piece of work in the stream's order.
    ///
    /// Bytes move at once: kernels are not computed, so nothing that runs on the card in between could change them.
    pub(crate) fn perform(&self, job: &StreamWork) -> CuResult {
        self.check_legacy()?;
        match job {
            StreamWork::Kernel(launch) => self.take_time(launch.time)?,
            StreamWork::Call(call) => self.reach(self.engine().submit_call(*call)?),
            StreamWork::Copy(copy) => copy.run()?,
            StreamWork::Fill(fill) => fill.run()?,
        }
        Ok(())
    }

    /// Takes device time in the stream's order.
    pub(crate) fn take_time(&self, duration: u64) -> CuResult {
        self.check_legacy()?;
        self.reach(self.engine().submit_time(duration)?);
        Ok(())
    }

    /// Fails where it is the legacy default stream and one is being captured that it would wait for.
    fn check_legacy(&self) -> CuResult {
        match self {
            Self::Default(_, true) => capture::forbid_legacy(),
            _ => Ok(()),
        }
    }

    /// Whether the stream is being captured.
    pub(crate) fn is_capturing(&self) -> bool {
        self.made().is_some_and(|stream| lock(&stream.capture).is_some())
    }

    /// When everything submitted so far is done.
    pub(crate) fn end(&self) -> Completion {
        self.made().map_or_else(|| self.engine().end(), |stream| lock(&stream.last).clone())
    }

    /// Notes that the stream now lasts until `completion`.
    pub(crate) fn reach(&self, completion: Completion) {
        if let Some(stream) = self.made() {
            *lock(&stream.last) = completion;
        }
    }

    /// Fails while the stream is being captured, and invalidates the capture: what the caller wants can't be captured.
    pub(crate) fn not_capturing(&self) -> CuResult {
        match self {
            Self::Made(stream, _) => stream.invalidate_capture(),
            Self::Default(..) => self.check_legacy(),
        }
    }
}

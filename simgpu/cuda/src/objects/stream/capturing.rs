//! The capture of a stream: how it begins, spreads to other streams, and ends.

use std::sync::Arc;

use super::{STREAMS, Stream};
use gpupool_nvidia::cuda::{CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_NON_BLOCKING};

use crate::{
    error::{CuError, CuResult},
    handles::Handle,
    objects::capture::{CaptureSequence, StreamCapture},
    sync::lock,
};

impl Stream {
    /// Begins a capture here, into a new graph or after nodes of one of the program's.
    pub(crate) fn begin_capture(&self, mode: u32, into: Option<(Handle, &[Handle])>) -> CuResult {
        if mode > CU_STREAM_CAPTURE_MODE_RELAXED {
            return Err(CuError::INVALID_VALUE);
        }
        let mut capture = lock(&self.capture);
        if capture.is_some() {
            return Err(CuError::ILLEGAL_STATE);
        }
        *capture = Some(StreamCapture::begin(self.flags & CU_STREAM_NON_BLOCKING == 0, mode, into)?);
        Ok(())
    }

    /// Waits for what an event recorded, which makes the stream part of the same capture.
    pub(crate) fn join_capture(&self, sequence: &Arc<CaptureSequence>, dependencies: &[Handle]) -> CuResult {
        if !sequence.is_active() {
            return Err(CuError::CAPTURED_EVENT);
        }
        let mut capture = lock(&self.capture);
        match capture.as_mut() {
            Some(capture) if capture.sequence.id == sequence.id => capture.join(dependencies),
            Some(_) => return Err(CuError::STREAM_CAPTURE_MERGE),
            None => *capture = Some(StreamCapture::part_of(sequence, dependencies)),
        }
        Ok(())
    }

    /// Ends the capture that began here; gives the graph's handle. Fails as [`StreamCapture::finish`] does, and where no
    /// capture began here.
    pub(crate) fn end_capture(&self) -> CuResult<Handle> {
        let mut own = lock(&self.capture);
        let Some(capture) = own.as_ref() else { return Err(CuError::ILLEGAL_STATE) };
        if !capture.is_origin() {
            return Err(CuError::STREAM_CAPTURE_UNMATCHED);
        }
        let Some(capture) = own.take() else { return Err(CuError::ILLEGAL_STATE) };
        drop(own);
        let sequence = &capture.sequence;
        sequence.end();
        let mut left = Vec::new();
        STREAMS.each(|stream| {
            let mut other = lock(&stream.capture);
            if other.as_ref().is_some_and(|other| other.sequence.id == sequence.id) {
                left.extend(other.take().map(|other| other.dependencies.into_vec()).unwrap_or_default());
            }
        });
        capture.finish(&left)
    }

    /// Fails where the stream is part of a capture, and invalidates that.
    pub(super) fn invalidate_capture(&self) -> CuResult {
        match lock(&self.capture).as_ref() {
            Some(capture) => {
                capture.sequence.invalidate();
                Err(CuError::STREAM_CAPTURE_UNSUPPORTED)
            }
            None => Ok(()),
        }
    }
}

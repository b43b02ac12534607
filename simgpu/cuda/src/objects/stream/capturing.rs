//! The recording of a stream: how it begins, spreads to other streams, and ends.

use std::sync::Arc;

use super::{STREAMS, Stream};
use crate::{
    error::{CuError, Res},
    handles::Handle,
    objects::capture::{Capture, RELAXED, Recording},
    sync::lock,
};

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;

impl Stream {
    /// Begins a recording here, into a new graph or after nodes of one of the program's.
    pub(crate) fn begin_capture(&self, mode: u32, into: Option<(Handle, &[Handle])>) -> Res {
        if mode > RELAXED {
            return Err(CuError::INVALID_VALUE);
        }
        let mut capture = lock(&self.capture);
        if capture.is_some() {
            return Err(CuError::ILLEGAL_STATE);
        }
        *capture = Some(Capture::begin(self.flags & NON_BLOCKING == 0, mode, into)?);
        Ok(())
    }

    /// Waits for what an event recorded, which makes the stream part of the same recording.
    pub(crate) fn join_capture(&self, recording: &Arc<Recording>, tips: &[Handle]) -> Res {
        if !recording.is_active() {
            return Err(CuError::CAPTURED_EVENT);
        }
        let mut capture = lock(&self.capture);
        match capture.as_mut() {
            Some(capture) if capture.recording.id == recording.id => capture.join(tips),
            Some(_) => return Err(CuError::STREAM_CAPTURE_MERGE),
            None => *capture = Some(Capture::part_of(recording, tips)),
        }
        Ok(())
    }

    /// Ends the recording that began here; gives the graph's handle. Fails as [`Capture::finish`] does, and where no
    /// recording began here.
    pub(crate) fn end_capture(&self) -> Res<Handle> {
        let mut own = lock(&self.capture);
        let Some(capture) = own.as_ref() else { return Err(CuError::ILLEGAL_STATE) };
        if !capture.is_origin() {
            return Err(CuError::STREAM_CAPTURE_UNMATCHED);
        }
        let Some(capture) = own.take() else { return Err(CuError::ILLEGAL_STATE) };
        drop(own);
        let recording = &capture.recording;
        recording.end();
        let mut left = Vec::new();
        STREAMS.each(|stream| {
            let mut other = lock(&stream.capture);
            if other.as_ref().is_some_and(|other| other.recording.id == recording.id) {
                left.extend(other.take().map(|other| other.tips.into_vec()).unwrap_or_default());
            }
        });
        capture.finish(&left)
    }

    /// Fails where the stream is part of a recording, and spoils that.
    pub(super) fn spoil_capture(&self) -> Res {
        match lock(&self.capture).as_ref() {
            Some(capture) => {
                capture.recording.spoil();
                Err(CuError::STREAM_CAPTURE_UNSUPPORTED)
            }
            None => Ok(()),
        }
    }
}

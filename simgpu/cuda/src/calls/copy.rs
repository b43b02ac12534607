//! The driver's calls that move and fill bytes.

use crate::{
    calls::entry::entry,
    error::CuResult,
    handles::Handle,
    memory::space::{CopyPointer, MemoryCopy, MemoryFill},
    objects::{
        stream::{LEGACY, PER_THREAD, legacy, own, target},
        stream_work::StreamWork,
    },
};

use CopyPointer::{Device, Host, Unified};

/// A copy that is done when the call returns: first the default stream's work, then the bytes.
pub(crate) fn now(default_stream: Handle, copy: MemoryCopy) -> CuResult {
    let target = target(default_stream)?;
    target.end().wait()?;
    copy.run()
}

/// A copy in a stream's order.
pub(crate) fn queued(stream: Handle, copy: MemoryCopy) -> CuResult {
    copy.check()?;
    target(stream)?.submit(StreamWork::Copy(copy))
}

fn fill(stream: Handle, fill: MemoryFill) -> CuResult {
    fill.check()?;
    target(stream)?.submit(StreamWork::Fill(fill))
}

const fn row(to: u64, value: u32, unit: u64, count: usize) -> MemoryFill {
    rows(to, 0, value, unit, count, 1)
}

const fn rows(to: u64, pitch: usize, value: u32, unit: u64, width: usize, height: usize) -> MemoryFill {
    let pattern = value.to_le_bytes();
    MemoryFill { to, pattern, unit, count: width as u64, rows: height as u64, pitch: pitch as u64 }
}

const fn plain(to: CopyPointer, from: CopyPointer, bytes: usize) -> MemoryCopy {
    MemoryCopy::plain(to, from, bytes as u64)
}

entry! {
    cuMemcpy(to: u64, from: u64, bytes: usize) { now(LEGACY, plain(Unified(to), Unified(from), bytes)) }
    cuMemcpy_ptds(to: u64, from: u64, bytes: usize) { now(PER_THREAD, plain(Unified(to), Unified(from), bytes)) }
    cuMemcpyHtoD_v2(to: u64, from: u64, bytes: usize) { now(LEGACY, plain(Device(to), Host(from), bytes)) }
    cuMemcpyHtoD_v2_ptds(to: u64, from: u64, bytes: usize) { now(PER_THREAD, plain(Device(to), Host(from), bytes)) }
    cuMemcpyDtoH_v2(to: u64, from: u64, bytes: usize) { now(LEGACY, plain(Host(to), Device(from), bytes)) }
    cuMemcpyDtoH_v2_ptds(to: u64, from: u64, bytes: usize) { now(PER_THREAD, plain(Host(to), Device(from), bytes)) }
    cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize) { queued(LEGACY, plain(Device(to), Device(from), bytes)) }
    cuMemcpyDtoD_v2_ptds(to: u64, from: u64, bytes: usize) {
        queued(PER_THREAD, plain(Device(to), Device(from), bytes))
    }
    cuMemcpyPeer(to: u64, _to_context: Handle, from: u64, _from_context: Handle, bytes: usize) {
        now(LEGACY, plain(Device(to), Device(from), bytes))
    }
    cuMemcpyPeer_ptds(to: u64, _to_context: Handle, from: u64, _from_context: Handle, bytes: usize) {
        now(PER_THREAD, plain(Device(to), Device(from), bytes))
    }
    cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: Handle) {
        queued(legacy(stream), plain(Unified(to), Unified(from), bytes))
    }
    cuMemcpyAsync_ptsz(to: u64, from: u64, bytes: usize, stream: Handle) {
        queued(own(stream), plain(Unified(to), Unified(from), bytes))
    }
    cuMemcpyHtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: Handle) {
        queued(legacy(stream), plain(Device(to), Host(from), bytes))
    }
    cuMemcpyHtoDAsync_v2_ptsz(to: u64, from: u64, bytes: usize, stream: Handle) {
        queued(own(stream), plain(Device(to), Host(from), bytes))
    }
    cuMemcpyDtoHAsync_v2(to: u64, from: u64, bytes: usize, stream: Handle) {
        queued(legacy(stream), plain(Host(to), Device(from), bytes))
    }
    cuMemcpyDtoHAsync_v2_ptsz(to: u64, from: u64, bytes: usize, stream: Handle) {
        queued(own(stream), plain(Host(to), Device(from), bytes))
    }
    cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: Handle) {
        queued(legacy(stream), plain(Device(to), Device(from), bytes))
    }
    cuMemcpyDtoDAsync_v2_ptsz(to: u64, from: u64, bytes: usize, stream: Handle) {
        queued(own(stream), plain(Device(to), Device(from), bytes))
    }
    cuMemcpyPeerAsync(to: u64, _to_context: Handle, from: u64, _from_context: Handle, bytes: usize, stream: Handle) {
        queued(legacy(stream), plain(Device(to), Device(from), bytes))
    }
    cuMemcpyPeerAsync_ptsz(
        to: u64,
        _to_context: Handle,
        from: u64,
        _from_context: Handle,
        bytes: usize,
        stream: Handle,
    ) {
        queued(own(stream), plain(Device(to), Device(from), bytes))
    }
    cuMemsetD8_v2(to: u64, value: u8, count: usize) { fill(LEGACY, row(to, value.into(), 1, count)) }
    cuMemsetD8_v2_ptds(to: u64, value: u8, count: usize) { fill(PER_THREAD, row(to, value.into(), 1, count)) }
    cuMemsetD16_v2(to: u64, value: u16, count: usize) { fill(LEGACY, row(to, value.into(), 2, count)) }
    cuMemsetD16_v2_ptds(to: u64, value: u16, count: usize) { fill(PER_THREAD, row(to, value.into(), 2, count)) }
    cuMemsetD32_v2(to: u64, value: u32, count: usize) { fill(LEGACY, row(to, value, 4, count)) }
    cuMemsetD32_v2_ptds(to: u64, value: u32, count: usize) { fill(PER_THREAD, row(to, value, 4, count)) }
    cuMemsetD8Async(to: u64, value: u8, count: usize, stream: Handle) {
        fill(legacy(stream), row(to, value.into(), 1, count))
    }
    cuMemsetD8Async_ptsz(to: u64, value: u8, count: usize, stream: Handle) {
        fill(own(stream), row(to, value.into(), 1, count))
    }
    cuMemsetD16Async(to: u64, value: u16, count: usize, stream: Handle) {
        fill(legacy(stream), row(to, value.into(), 2, count))
    }
    cuMemsetD16Async_ptsz(to: u64, value: u16, count: usize, stream: Handle) {
        fill(own(stream), row(to, value.into(), 2, count))
    }
    cuMemsetD32Async(to: u64, value: u32, count: usize, stream: Handle) {
        fill(legacy(stream), row(to, value, 4, count))
    }
    cuMemsetD32Async_ptsz(to: u64, value: u32, count: usize, stream: Handle) {
        fill(own(stream), row(to, value, 4, count))
    }
    cuMemsetD2D8_v2(to: u64, pitch: usize, value: u8, width: usize, height: usize) {
        fill(LEGACY, rows(to, pitch, value.into(), 1, width, height))
    }
    cuMemsetD2D16_v2(to: u64, pitch: usize, value: u16, width: usize, height: usize) {
        fill(LEGACY, rows(to, pitch, value.into(), 2, width, height))
    }
    cuMemsetD2D32_v2(to: u64, pitch: usize, value: u32, width: usize, height: usize) {
        fill(LEGACY, rows(to, pitch, value, 4, width, height))
    }
    cuMemsetD2D8Async(to: u64, pitch: usize, value: u8, width: usize, height: usize, stream: Handle) {
        fill(legacy(stream), rows(to, pitch, value.into(), 1, width, height))
    }
    cuMemsetD2D16Async(to: u64, pitch: usize, value: u16, width: usize, height: usize, stream: Handle) {
        fill(legacy(stream), rows(to, pitch, value.into(), 2, width, height))
    }
    cuMemsetD2D32Async(to: u64, pitch: usize, value: u32, width: usize, height: usize, stream: Handle) {
        fill(legacy(stream), rows(to, pitch, value, 4, width, height))
    }
    cuMemsetD2D8_v2_ptds(to: u64, pitch: usize, value: u8, width: usize, height: usize) {
        fill(PER_THREAD, rows(to, pitch, value.into(), 1, width, height))
    }
    cuMemsetD2D8Async_ptsz(to: u64, pitch: usize, value: u8, width: usize, height: usize, stream: Handle) {
        fill(own(stream), rows(to, pitch, value.into(), 1, width, height))
    }
    cuMemsetD2D16_v2_ptds(to: u64, pitch: usize, value: u16, width: usize, height: usize) {
        fill(PER_THREAD, rows(to, pitch, value.into(), 2, width, height))
    }
    cuMemsetD2D16Async_ptsz(to: u64, pitch: usize, value: u16, width: usize, height: usize, stream: Handle) {
        fill(own(stream), rows(to, pitch, value.into(), 2, width, height))
    }
    cuMemsetD2D32_v2_ptds(to: u64, pitch: usize, value: u32, width: usize, height: usize) {
        fill(PER_THREAD, rows(to, pitch, value, 4, width, height))
    }
    cuMemsetD2D32Async_ptsz(to: u64, pitch: usize, value: u32, width: usize, height: usize, stream: Handle) {
        fill(own(stream), rows(to, pitch, value, 4, width, height))
    }
}

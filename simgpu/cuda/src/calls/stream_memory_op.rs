//! The driver's calls that let a stream write a value to memory, or wait for one; and many copies in one call.
//!
//! A card does one thing at a time here, so a stream that waits for a value holds up the process's others too.

use std::{ffi::c_void, time::Duration};

use gpupool_nvidia::cuda::{
    CU_STREAM_MEM_OP_BARRIER, CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES, CU_STREAM_MEM_OP_WAIT_VALUE_32,
    CU_STREAM_MEM_OP_WAIT_VALUE_64, CU_STREAM_MEM_OP_WRITE_VALUE_32, CU_STREAM_MEM_OP_WRITE_VALUE_64,
    CU_STREAM_WAIT_VALUE_AND, CU_STREAM_WAIT_VALUE_EQ, CU_STREAM_WAIT_VALUE_FLUSH, CU_STREAM_WAIT_VALUE_GEQ,
    CU_STREAM_WAIT_VALUE_NOR, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER, CUstreamBatchMemOpParams,
};

use crate::{
    calls::{
        copy::queued,
        entry::{entry, put_if_wanted, read},
    },
    device::host_call::HostCall,
    error::{CuError, CuResult},
    handles::Handle,
    memory::space::{CopyPointer, MemoryCopy, MemoryFill},
    objects::{
        stream::{legacy, own, target},
        stream_work::StreamWork,
    },
};

/// How often a waiting stream looks again.
const POLL_INTERVAL: Duration = Duration::from_micros(50);

/// What a stream waits for.
struct Awaited {
    address: u64,
    bytes: u64,
    value: u64,
    flags: u32,
}

impl Awaited {
    /// Whether it has come; memory that is gone is waited for no more.
    fn has_come(&self) -> bool {
        let mut found = 0_u64;
        let to = CopyPointer::Host((&raw mut found) as u64);
        if MemoryCopy::plain(to, CopyPointer::Device(self.address), self.bytes).run().is_err() {
            return true;
        }
        match self.flags {
            // In the arithmetic of numbers that wrap around.
            CU_STREAM_WAIT_VALUE_GEQ if self.bytes == 4 => {
                narrow(found).wrapping_sub(narrow(self.value)).cast_signed() >= 0
            }
            CU_STREAM_WAIT_VALUE_GEQ => found.wrapping_sub(self.value).cast_signed() >= 0,
            CU_STREAM_WAIT_VALUE_EQ => found == self.value,
            CU_STREAM_WAIT_VALUE_AND => found & self.value != 0,
            _ => !(found | self.value) & (u64::MAX >> (64 - 8 * self.bytes)) != 0,
        }
    }
}

#[allow(clippy::cast_possible_truncation, reason = "the lower half is what is meant")]
const fn narrow(value: u64) -> u32 {
    value as u32
}

/// Waits for a value in memory.
///
/// # Safety
/// `awaited` is an [`Awaited`] that [`wait`] boxed, and nobody else's.
unsafe extern "C" fn wait_for(awaited: *mut c_void) {
    // SAFETY: made by `wait` for this one call.
    let awaited = unsafe { Box::from_raw(awaited.cast::<Awaited>()) };
    while !awaited.has_come() {
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn wait(stream: Handle, address: u64, bytes: u64, value: u64, flags: u32) -> CuResult {
    let target = target(stream)?;
    target.not_capturing()?;
    let flags = flags & !CU_STREAM_WAIT_VALUE_FLUSH;
    if flags > CU_STREAM_WAIT_VALUE_NOR || !address.is_multiple_of(bytes) {
        return Err(CuError::INVALID_VALUE);
    }
    MemoryFill { to: address, pattern: [0; 4], unit: bytes.min(4), count: bytes / 4, rows: 1, pitch: 0 }
        .check()?;
    let awaited = Box::into_raw(Box::new(Awaited { address, bytes, value, flags }));
    let submitted =
        target.submit(StreamWork::Call(HostCall { function: wait_for, argument: awaited.cast() }));
    if submitted.is_err() {
        // SAFETY: nobody else has it.
        drop(unsafe { Box::from_raw(awaited) });
    }
    submitted
}

/// Writes a value; it is there at once, as all bytes are.
fn write(stream: Handle, address: u64, bytes: u64, value: u64, flags: u32) -> CuResult {
    let target = target(stream)?;
    if flags & !CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER != 0 || !address.is_multiple_of(bytes) {
        return Err(CuError::INVALID_VALUE);
    }
    for (place, half) in (0..bytes / 4).zip([narrow(value), narrow(value >> 32)]) {
        let fill = MemoryFill {
            to: address + 4 * place,
            pattern: half.to_le_bytes(),
            unit: 4,
            count: 1,
            rows: 1,
            pitch: 0,
        };
        fill.check()?;
        target.submit(StreamWork::Fill(fill))?;
    }
    Ok(())
}

/// Submits several operations on memory.
///
/// # Safety
/// `list` is null or valid for reads of `count` operations; it need not be aligned.
unsafe fn batch(stream: Handle, count: u32, list: *const CUstreamBatchMemOpParams, flags: u32) -> CuResult {
    if flags != 0 || count == 0 || count > 256 {
        return Err(CuError::INVALID_VALUE);
    }
    for place in 0..count as usize {
        // SAFETY: by this function's contract the list has that many.
        let CUstreamBatchMemOpParams { operation, address, value, flags, .. } =
            unsafe { read(list.wrapping_add(place)) }?;
        match operation {
            CU_STREAM_MEM_OP_WAIT_VALUE_32 => wait(stream, address, 4, value, flags)?,
            CU_STREAM_MEM_OP_WRITE_VALUE_32 => write(stream, address, 4, value, flags)?,
            CU_STREAM_MEM_OP_WAIT_VALUE_64 => wait(stream, address, 8, value, flags)?,
            CU_STREAM_MEM_OP_WRITE_VALUE_64 => write(stream, address, 8, value, flags)?,
            CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES | CU_STREAM_MEM_OP_BARRIER => {}
            _ => return Err(CuError::INVALID_VALUE),
        }
    }
    Ok(())
}

/// Submits several copies.
///
/// # Safety
/// `to`, `from` and `sizes` are each null or valid for reads of `count` values, `failed` is null or valid for
/// a write.
unsafe fn copies(
    to: *const u64,
    from: *const u64,
    sizes: *const usize,
    count: usize,
    failed: *mut usize,
    stream: Handle,
) -> CuResult {
    // What fails before any copy is about all of them.
    // SAFETY: by this function's contract: lists of that many.
    unsafe {
        put_if_wanted(failed, usize::MAX);
        if count == 0 {
            return Err(CuError::INVALID_VALUE);
        }
        for place in 0..count {
            let (to, from) = (read(to.wrapping_add(place))?, read(from.wrapping_add(place))?);
            let bytes = read(sizes.wrapping_add(place))? as u64;
            let copied = queued(
                stream,
                MemoryCopy::plain(CopyPointer::Unified(to), CopyPointer::Unified(from), bytes),
            );
            copied.inspect_err(|_| put_if_wanted(failed, place))?;
        }
    }
    Ok(())
}

entry! {
    cuStreamWaitValue32(stream: Handle, address: u64, value: u32, flags: u32) {
        wait(legacy(stream), address, 4, value.into(), flags)
    }
    cuStreamWaitValue32_ptsz(stream: Handle, address: u64, value: u32, flags: u32) {
        wait(own(stream), address, 4, value.into(), flags)
    }
    cuStreamWaitValue32_v2(stream: Handle, address: u64, value: u32, flags: u32) {
        wait(legacy(stream), address, 4, value.into(), flags)
    }
    cuStreamWaitValue32_v2_ptsz(stream: Handle, address: u64, value: u32, flags: u32) {
        wait(own(stream), address, 4, value.into(), flags)
    }
    cuStreamWaitValue64(stream: Handle, address: u64, value: u64, flags: u32) {
        wait(legacy(stream), address, 8, value, flags)
    }
    cuStreamWaitValue64_ptsz(stream: Handle, address: u64, value: u64, flags: u32) {
        wait(own(stream), address, 8, value, flags)
    }
    cuStreamWaitValue64_v2(stream: Handle, address: u64, value: u64, flags: u32) {
        wait(legacy(stream), address, 8, value, flags)
    }
    cuStreamWaitValue64_v2_ptsz(stream: Handle, address: u64, value: u64, flags: u32) {
        wait(own(stream), address, 8, value, flags)
    }
    cuStreamWriteValue32(stream: Handle, address: u64, value: u32, flags: u32) {
        write(legacy(stream), address, 4, value.into(), flags)
    }
    cuStreamWriteValue32_ptsz(stream: Handle, address: u64, value: u32, flags: u32) {
        write(own(stream), address, 4, value.into(), flags)
    }
    cuStreamWriteValue32_v2(stream: Handle, address: u64, value: u32, flags: u32) {
        write(legacy(stream), address, 4, value.into(), flags)
    }
    cuStreamWriteValue32_v2_ptsz(stream: Handle, address: u64, value: u32, flags: u32) {
        write(own(stream), address, 4, value.into(), flags)
    }
    cuStreamWriteValue64(stream: Handle, address: u64, value: u64, flags: u32) {
        write(legacy(stream), address, 8, value, flags)
    }
    cuStreamWriteValue64_ptsz(stream: Handle, address: u64, value: u64, flags: u32) {
        write(own(stream), address, 8, value, flags)
    }
    cuStreamWriteValue64_v2(stream: Handle, address: u64, value: u64, flags: u32) {
        write(legacy(stream), address, 8, value, flags)
    }
    cuStreamWriteValue64_v2_ptsz(stream: Handle, address: u64, value: u64, flags: u32) {
        write(own(stream), address, 8, value, flags)
    }
    cuStreamBatchMemOp(stream: Handle, count: u32, list: *const CUstreamBatchMemOpParams, flags: u32) {
        batch(legacy(stream), count, list, flags)
    }
    cuStreamBatchMemOp_ptsz(stream: Handle, count: u32, list: *const CUstreamBatchMemOpParams, flags: u32) {
        batch(own(stream), count, list, flags)
    }
    cuStreamBatchMemOp_v2(stream: Handle, count: u32, list: *const CUstreamBatchMemOpParams, flags: u32) {
        batch(legacy(stream), count, list, flags)
    }
    cuStreamBatchMemOp_v2_ptsz(stream: Handle, count: u32, list: *const CUstreamBatchMemOpParams, flags: u32) {
        batch(own(stream), count, list, flags)
    }
    cuMemcpyBatchAsync(
        to: *const u64,
        from: *const u64,
        sizes: *const usize,
        count: usize,
        _attributes: *const c_void,
        _places: *const usize,
        _attribute_count: usize,
        failed: *mut usize,
        stream: Handle,
    ) { copies(to, from, sizes, count, failed, legacy(stream)) }
    cuMemcpyBatchAsync_ptsz(
        to: *const u64,
        from: *const u64,
        sizes: *const usize,
        count: usize,
        _attributes: *const c_void,
        _places: *const usize,
        _attribute_count: usize,
        failed: *mut usize,
        stream: Handle,
    ) { copies(to, from, sizes, count, failed, own(stream)) }
    cuMemcpyBatchAsync_v2(
        to: *const u64,
        from: *const u64,
        sizes: *const usize,
        count: usize,
        _attributes: *const c_void,
        _places: *const usize,
        _attribute_count: usize,
        stream: Handle,
    ) { copies(to, from, sizes, count, std::ptr::null_mut(), legacy(stream)) }
    cuMemcpyBatchAsync_v2_ptsz(
        to: *const u64,
        from: *const u64,
        sizes: *const usize,
        count: usize,
        _attributes: *const c_void,
        _places: *const usize,
        _attribute_count: usize,
        stream: Handle,
    ) { copies(to, from, sizes, count, std::ptr::null_mut(), own(stream)) }
}

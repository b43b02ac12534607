//! The driver's calls that copy rectangles and boxes, from and to arrays too.

use gpupool_nvidia::cuda::{CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER};

use crate::{
    calls::{
        copy::{now, queued},
        entry::{entry, read},
    },
    error::CuResult,
    handles::Handle,
    memory::space::{CopyPointer, MemoryCopy},
    objects::{
        array, memcpy3d,
        stream::{LEGACY, PER_THREAD, legacy, own},
    },
};

use CopyPointer::{Device, Host};

/// # Safety
/// `description` is null or valid for a read; it need not be aligned.
unsafe fn rectangle(description: *const CUDA_MEMCPY2D) -> CuResult<MemoryCopy> {
    // SAFETY: the caller vouches for it.
    memcpy3d::rectangle(&unsafe { read(description) }?)
}

/// # Safety
/// `description` is null or valid for a read; it need not be aligned.
unsafe fn solid(description: *const CUDA_MEMCPY3D) -> CuResult<MemoryCopy> {
    // SAFETY: the caller vouches for it.
    memcpy3d::copy(&unsafe { read(description) }?)
}

/// # Safety
/// `description` is null or valid for a read; it need not be aligned.
unsafe fn solid_between_contexts(description: *const CUDA_MEMCPY3D_PEER) -> CuResult<MemoryCopy> {
    // SAFETY: the caller vouches for it.
    memcpy3d::copy_between_contexts(&unsafe { read(description) }?)
}

/// So many bytes of an array from an offset on, in the order of its rows.
fn part(handle: Handle, offset: usize, bytes: usize) -> CuResult<CopyPointer> {
    array::array(handle)?.bytes(offset as u64, bytes as u64)
}

const fn plain(to: CopyPointer, from: CopyPointer, bytes: usize) -> MemoryCopy {
    MemoryCopy::plain(to, from, bytes as u64)
}

entry! {
    cuMemcpy2D_v2(description: *const CUDA_MEMCPY2D) { now(LEGACY, rectangle(description)?) }
    cuMemcpy2D_v2_ptds(description: *const CUDA_MEMCPY2D) { now(PER_THREAD, rectangle(description)?) }
    cuMemcpy2DUnaligned_v2(description: *const CUDA_MEMCPY2D) { now(LEGACY, rectangle(description)?) }
    cuMemcpy2DUnaligned_v2_ptds(description: *const CUDA_MEMCPY2D) { now(PER_THREAD, rectangle(description)?) }
    cuMemcpy2DAsync_v2(description: *const CUDA_MEMCPY2D, stream: Handle) {
        queued(legacy(stream), rectangle(description)?)
    }
    cuMemcpy2DAsync_v2_ptsz(description: *const CUDA_MEMCPY2D, stream: Handle) {
        queued(own(stream), rectangle(description)?)
    }
    cuMemcpy3D_v2(description: *const CUDA_MEMCPY3D) { now(LEGACY, solid(description)?) }
    cuMemcpy3D_v2_ptds(description: *const CUDA_MEMCPY3D) { now(PER_THREAD, solid(description)?) }
    cuMemcpy3DAsync_v2(description: *const CUDA_MEMCPY3D, stream: Handle) {
        queued(legacy(stream), solid(description)?)
    }
    cuMemcpy3DAsync_v2_ptsz(description: *const CUDA_MEMCPY3D, stream: Handle) {
        queued(own(stream), solid(description)?)
    }
    cuMemcpy3DPeer(description: *const CUDA_MEMCPY3D_PEER) { now(LEGACY, solid_between_contexts(description)?) }
    cuMemcpy3DPeer_ptds(description: *const CUDA_MEMCPY3D_PEER) {
        now(PER_THREAD, solid_between_contexts(description)?)
    }
    cuMemcpy3DPeerAsync(description: *const CUDA_MEMCPY3D_PEER, stream: Handle) {
        queued(legacy(stream), solid_between_contexts(description)?)
    }
    cuMemcpy3DPeerAsync_ptsz(description: *const CUDA_MEMCPY3D_PEER, stream: Handle) {
        queued(own(stream), solid_between_contexts(description)?)
    }
    cuMemcpyAtoH_v2(to: u64, from: Handle, offset: usize, bytes: usize) {
        now(LEGACY, plain(Host(to), part(from, offset, bytes)?, bytes))
    }
    cuMemcpyAtoH_v2_ptds(to: u64, from: Handle, offset: usize, bytes: usize) {
        now(PER_THREAD, plain(Host(to), part(from, offset, bytes)?, bytes))
    }
    cuMemcpyHtoA_v2(to: Handle, offset: usize, from: u64, bytes: usize) {
        now(LEGACY, plain(part(to, offset, bytes)?, Host(from), bytes))
    }
    cuMemcpyHtoA_v2_ptds(to: Handle, offset: usize, from: u64, bytes: usize) {
        now(PER_THREAD, plain(part(to, offset, bytes)?, Host(from), bytes))
    }
    cuMemcpyAtoD_v2(to: u64, from: Handle, offset: usize, bytes: usize) {
        queued(LEGACY, plain(Device(to), part(from, offset, bytes)?, bytes))
    }
    cuMemcpyAtoD_v2_ptds(to: u64, from: Handle, offset: usize, bytes: usize) {
        queued(PER_THREAD, plain(Device(to), part(from, offset, bytes)?, bytes))
    }
    cuMemcpyDtoA_v2(to: Handle, offset: usize, from: u64, bytes: usize) {
        queued(LEGACY, plain(part(to, offset, bytes)?, Device(from), bytes))
    }
    cuMemcpyDtoA_v2_ptds(to: Handle, offset: usize, from: u64, bytes: usize) {
        queued(PER_THREAD, plain(part(to, offset, bytes)?, Device(from), bytes))
    }
    cuMemcpyAtoA_v2(to: Handle, to_offset: usize, from: Handle, from_offset: usize, bytes: usize) {
        queued(LEGACY, plain(part(to, to_offset, bytes)?, part(from, from_offset, bytes)?, bytes))
    }
    cuMemcpyAtoA_v2_ptds(to: Handle, to_offset: usize, from: Handle, from_offset: usize, bytes: usize) {
        queued(PER_THREAD, plain(part(to, to_offset, bytes)?, part(from, from_offset, bytes)?, bytes))
    }
    cuMemcpyHtoAAsync_v2(to: Handle, offset: usize, from: u64, bytes: usize, stream: Handle) {
        queued(legacy(stream), plain(part(to, offset, bytes)?, Host(from), bytes))
    }
    cuMemcpyHtoAAsync_v2_ptsz(to: Handle, offset: usize, from: u64, bytes: usize, stream: Handle) {
        queued(own(stream), plain(part(to, offset, bytes)?, Host(from), bytes))
    }
    cuMemcpyAtoHAsync_v2(to: u64, from: Handle, offset: usize, bytes: usize, stream: Handle) {
        queued(legacy(stream), plain(Host(to), part(from, offset, bytes)?, bytes))
    }
    cuMemcpyAtoHAsync_v2_ptsz(to: u64, from: Handle, offset: usize, bytes: usize, stream: Handle) {
        queued(own(stream), plain(Host(to), part(from, offset, bytes)?, bytes))
    }
}

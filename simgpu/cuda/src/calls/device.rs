//! Who the devices are; answered without any context.

use std::ffi::{CStr, c_char, c_void};

use gpupool_nvidia::cuda::{
    CU_DEVICE_ATTRIBUTE_CLOCK_RATE, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_MAX_PITCH,
    CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK,
    CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH,
    CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY,
    CU_DEVICE_ATTRIBUTE_WARP_SIZE, CUdevprop,
};
use simgpu_device::Card;

use crate::{
    calls::entry::{entry, put},
    device::{
        attributes::{self, BLOCK_SIDES, GRID_SIDES, attribute},
        initialised::initialised,
    },
    error::{CuError, CuResult},
};

/// Writes `text` with its zero byte into a buffer of `room` bytes, cut short if need be.
///
/// # Safety
/// `buffer` is null or valid for writes of `room` bytes.
pub(crate) unsafe fn put_text(buffer: *mut c_char, room: i32, text: &str) -> CuResult {
    let room = usize::try_from(room).ok().filter(|&room| room > 0 && !buffer.is_null());
    let length = text.len().min(room.ok_or(CuError::INVALID_VALUE)? - 1);
    // SAFETY: `length` and the zero byte fit into `room`.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), buffer.cast(), length);
        buffer.add(length).write(0);
    }
    Ok(())
}

/// The short form that CUDA uses: `0000:3B:00.0`.
fn bus_id(card: Card) -> String {
    let pci = card.pci();
    format!("{:04X}:{:02X}:{:02X}.0", pci.domain, pci.bus, pci.device)
}

/// Domain (0 where it is left out), bus and device of `3b:00.0`, `0000:3B:00.0` or `00000000:3B:00.0`.
fn parse_bus_id(text: &str) -> Option<(u32, u32, u32)> {
    let text = text.rsplit_once('.').map_or(text, |(place, _function)| place);
    let parts: Result<Vec<_>, _> = text.split(':').map(|part| u32::from_str_radix(part, 16)).collect();
    match parts.ok()?[..] {
        [bus, device] => Some((0, bus, device)),
        [domain, bus, device] => Some((domain, bus, device)),
        _ => None,
    }
}

entry! {
    cuDeviceGetCount(count: *mut i32) {
        put(count, i32::try_from(initialised()?.cards.len()).unwrap_or(i32::MAX))
    }
    cuDeviceGet(device: *mut i32, ordinal: i32) {
        initialised()?.card(ordinal)?;
        put(device, ordinal)
    }
    cuDeviceGetName(name: *mut c_char, room: i32, device: i32) {
        put_text(name, room, initialised()?.card(device)?.name())
    }
    cuDeviceGetUuid(uuid: *mut [u8; 16], device: i32) {
        put(uuid, initialised()?.card(device)?.uuid().0)
    }
    cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: i32) {
        put(uuid, initialised()?.card(device)?.uuid().0)
    }
    // The unversioned call knows 32-bit sizes only.
    cuDeviceTotalMem(bytes: *mut u32, device: i32) {
        let total = initialised()?.card(device)?.total_memory();
        put(bytes, u32::try_from(total).unwrap_or(u32::MAX))
    }
    cuDeviceTotalMem_v2(bytes: *mut usize, device: i32) {
        let total = initialised()?.card(device)?.total_memory();
        put(bytes, usize::try_from(total).unwrap_or(usize::MAX))
    }
    cuDeviceGetAttribute(value: *mut i32, number: i32, device: i32) {
        let card = initialised()?.card(device)?;
        if !attributes::exists(number) {
            return Err(CuError::INVALID_VALUE);
        }
        put(value, attribute(card, number))
    }
    cuDeviceComputeCapability(major: *mut i32, minor: *mut i32, device: i32) {
        let card = initialised()?.card(device)?;
        put(major, attribute(card, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR))?;
        put(minor, attribute(card, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR))
    }
    cuDeviceGetProperties(properties: *mut CUdevprop, device: i32) {
        let card = initialised()?.card(device)?;
        let value = |number| attribute(card, number);
        put(properties, CUdevprop {
            maxThreadsPerBlock: value(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
            maxThreadsDim: BLOCK_SIDES.map(value),
            maxGridSize: GRID_SIDES.map(value),
            sharedMemPerBlock: value(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK),
            totalConstantMemory: value(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY),
            SIMDWidth: value(CU_DEVICE_ATTRIBUTE_WARP_SIZE),
            memPitch: value(CU_DEVICE_ATTRIBUTE_MAX_PITCH),
            regsPerBlock: value(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK),
            clockRate: value(CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
            textureAlign: value(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT),
        })
    }
    cuDeviceGetPCIBusId(text: *mut c_char, room: i32, device: i32) {
        let card = initialised()?.card(device)?;
        put_text(text, room, &bus_id(card))
    }
    cuDeviceGetByPCIBusId(device: *mut i32, text: *const c_char) {
        if text.is_null() {
            return Err(CuError::INVALID_VALUE);
        }
        let text = CStr::from_ptr(text).to_str().map_err(|_| CuError::INVALID_VALUE)?;
        let wanted = parse_bus_id(text).ok_or(CuError::INVALID_VALUE)?;
        let place = initialised()?.cards.iter().position(|card| {
            let pci = card.pci();
            (pci.domain, pci.bus, pci.device) == wanted
        });
        let ordinal = place.and_then(|place| i32::try_from(place).ok()).ok_or(CuError::INVALID_DEVICE)?;
        put(device, ordinal)
    }
    // Simulated cards have no link to each other.
    cuDeviceCanAccessPeer(can: *mut i32, device: i32, peer: i32) {
        initialised()?.card(device)?;
        initialised()?.card(peer)?;
        put(can, 0)
    }
    cuDeviceGetP2PAttribute(value: *mut i32, _attribute: i32, device: i32, peer: i32) {
        initialised()?.card(device)?;
        initialised()?.card(peer)?;
        if device == peer {
            return Err(CuError::INVALID_DEVICE);
        }
        put(value, 0)
    }
    cuDeviceGetExecAffinitySupport(supported: *mut i32, _kind: i32, device: i32) {
        initialised()?.card(device)?;
        put(supported, 0)
    }
    cuDeviceGetTexture1DLinearMaxWidth(width: *mut usize, _format: i32, _channels: u32, device: i32) {
        let card = initialised()?.card(device)?;
        let most = attribute(card, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH);
        put(width, usize::try_from(most).unwrap_or_default())
    }
    cuDeviceGetHostAtomicCapabilities(
        capabilities: *mut u32,
        operations: *const i32,
        count: u32,
        device: i32,
    ) {
        initialised()?.card(device)?;
        if capabilities.is_null() || operations.is_null() || count == 0 {
            return Err(CuError::INVALID_VALUE);
        }
        capabilities.write_bytes(0, count as usize);
        Ok(())
    }
    cuCtxEnablePeerAccess(_context: *mut c_void, _flags: u32) {
        Err(CuError::PEER_ACCESS_UNSUPPORTED)
    }
}

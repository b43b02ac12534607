//! What programs say a node does, in the structures of the C interface, and back.

use std::{ffi::c_void, sync::Arc};

use crate::{
    calls::memory_pool::{Access, Properties},
    device::host_call::HostCall,
    error::{CuError, CuResult},
    handles::Handle,
    memory::{
        graph_memory::GraphMemory,
        space::{self, MemoryFill},
    },
    objects::{
        context::{context, current},
        graph::node::NodeWork,
        launch::{Launch, LaunchShape},
        memcpy3d::Body,
    },
};

/// `CUDA_KERNEL_NODE_PARAMS`, its first form.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kernel {
    function: Handle,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
}

/// `CUDA_KERNEL_NODE_PARAMS_v2` and `_v3`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct KernelV2 {
    kernel: Kernel,
    /// A `CUkernel`, used where there is no function.
    instead: Handle,
    context: Handle,
}

/// `CUDA_MEMSET_NODE_PARAMS`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Set {
    to: u64,
    pitch: usize,
    value: u32,
    element: u32,
    width: usize,
    height: usize,
}

/// `CUDA_HOST_NODE_PARAMS`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Host {
    function: Option<unsafe extern "C" fn(*mut c_void)>,
    argument: *mut c_void,
}

/// `CUDA_MEM_ALLOC_NODE_PARAMS`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Allocation {
    pool: Properties,
    access: *const Access,
    access_count: usize,
    size: usize,
    /// The answer.
    pub(crate) pointer: u64,
}

/// `CUDA_MEMCPY_NODE_PARAMS`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Memcpy {
    flags: i32,
    reserved: i32,
    context: Handle,
    copy: Body,
}

/// `CUgraphNodeParams`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parameters {
    pub(crate) kind: u32,
    reserved: [u32; 3],
    /// One of the structures above.
    body: [u64; 29],
    end: u64,
}

impl KernelV2 {
    /// The kernel as work of the context that it names, or of the current one.
    pub(crate) unsafe fn work(&self) -> CuResult<NodeWork> {
        let context = if self.context == 0 { current()? } else { context(self.context)? };
        let Kernel { function, grid, block, shared, parameters, extra } = self.kernel;
        let function = if function == 0 { self.instead } else { function };
        let shape = LaunchShape { grid, block, shared, cooperative: false };
        // SAFETY: the driver API's contract.
        Ok(NodeWork::Kernel(unsafe { Launch::prepare(&context, function, shape, parameters, extra)? }))
    }

    pub(crate) fn of(launch: &Launch) -> Self {
        let LaunchShape { grid, block, shared, .. } = launch.shape;
        let (parameters, extra) = (launch.arguments.addresses(), std::ptr::null_mut());
        let kernel = Kernel { function: launch.function, grid, block, shared, parameters, extra };
        Self { kernel, instead: 0, context: 0 }
    }

    pub(crate) const fn first_form(self) -> Kernel {
        self.kernel
    }
}

impl From<Kernel> for KernelV2 {
    fn from(kernel: Kernel) -> Self {
        Self { kernel, instead: 0, context: 0 }
    }
}

impl Set {
    pub(crate) fn work(&self) -> CuResult<NodeWork> {
        let Self { to, pitch, value, element, width, height } = *self;
        if !matches!(element, 1 | 2 | 4) || width == 0 || height == 0 {
            return Err(CuError::INVALID_VALUE);
        }
        let (count, rows, pitch) = (width as u64, height as u64, pitch as u64);
        let unit = u64::from(element);
        Ok(NodeWork::Fill(MemoryFill { to, pattern: value.to_le_bytes(), unit, count, rows, pitch }))
    }

    pub(crate) fn of(fill: &MemoryFill) -> Self {
        let size = |value| usize::try_from(value).unwrap_or(usize::MAX);
        Self {
            to: fill.to,
            pitch: size(fill.pitch),
            value: u32::from_le_bytes(fill.pattern),
            element: u32::try_from(fill.unit).unwrap_or_default(),
            width: size(fill.count),
            height: size(fill.rows),
        }
    }
}

impl Host {
    pub(crate) fn work(&self) -> CuResult<NodeWork> {
        let function = self.function.ok_or(CuError::INVALID_VALUE)?;
        Ok(NodeWork::Call(HostCall { function, argument: self.argument }))
    }

    pub(crate) const fn of(call: &HostCall) -> Self {
        Self { function: Some(call.function), argument: call.argument }
    }
}

impl Allocation {
    pub(crate) fn work(&self) -> CuResult<NodeWork> {
        if self.pool.handle_types != 0 {
            return Err(CuError::INVALID_VALUE);
        }
        Ok(NodeWork::Allocate(GraphMemory::new(self.size as u64, self.pool.device()?)?))
    }

    pub(crate) fn of(memory: &GraphMemory) -> Self {
        Self {
            pool: Properties::on(memory.device),
            access: std::ptr::null(),
            access_count: 0,
            size: usize::try_from(memory.size).unwrap_or(usize::MAX),
            pointer: memory.base,
        }
    }
}

/// The description of a copy: the program's, if it gave one.
pub(crate) fn described(copy: &space::MemoryCopy, body: Option<&Body>) -> Body {
    body.copied().unwrap_or_else(|| Body::of(copy))
}

/// A copy with the description that the program gave.
pub(crate) fn copy(body: Body) -> CuResult<NodeWork> {
    Ok(NodeWork::Copy(body.copy()?, Some(Box::new(body))))
}

impl Parameters {
    /// The structure that stands for this kind of node.
    fn body<T: Copy>(&self) -> T {
        const { assert!(size_of::<T>() <= size_of::<[u64; 29]>()) };
        // SAFETY: plain structures without forbidden values, shorter than the room.
        unsafe { (&raw const self.body).cast::<T>().read_unaligned() }
    }

    fn put<T: Copy>(kind: u32, value: T) -> Self {
        const { assert!(size_of::<T>() <= size_of::<[u64; 29]>()) };
        let mut body = [0; 29];
        // SAFETY: as above.
        unsafe { (&raw mut body).cast::<T>().write_unaligned(value) };
        Self { kind, reserved: [0; 3], body, end: 0 }
    }

    /// The work that it describes. A child graph is the program's own here, and is copied by whoever adds it.
    pub(crate) unsafe fn work(&self) -> CuResult<NodeWork> {
        match self.kind {
            // SAFETY: the driver API's contract.
            0 => unsafe { self.body::<KernelV2>().work() },
            1 => copy(self.body::<Memcpy>().copy),
            2 => self.body::<Set>().work(),
            3 => self.body::<Host>().work(),
            4 => Ok(NodeWork::Child(self.body())),
            5 => Ok(NodeWork::Empty),
            6 => Ok(NodeWork::Wait(self.body())),
            7 => Ok(NodeWork::Record(self.body())),
            10 => self.body::<Allocation>().work(),
            11 => Ok(NodeWork::Free(self.body())),
            8 | 9 | 12 | 13 => Err(CuError::NOT_SUPPORTED),
            _ => Err(CuError::INVALID_VALUE),
        }
    }

    /// The description of work.
    pub(crate) fn of(work: &NodeWork) -> Self {
        let kind = work.kind();
        match work {
            NodeWork::Kernel(launch) => Self::put(kind, KernelV2::of(launch)),
            NodeWork::Copy(copy, body) => {
                let copy = described(copy, body.as_deref());
                Self::put(kind, Memcpy { flags: 0, reserved: 0, context: 0, copy })
            }
            NodeWork::Fill(fill) => Self::put(kind, Set::of(fill)),
            NodeWork::Call(call) => Self::put(kind, Host::of(call)),
            NodeWork::Child(handle) | NodeWork::Wait(handle) | NodeWork::Record(handle) => {
                Self::put(kind, *handle)
            }
            NodeWork::Empty => Self::put(kind, 0_u64),
            NodeWork::Allocate(memory) => Self::put(kind, Allocation::of(memory)),
            NodeWork::Free(pointer) => Self::put(kind, *pointer),
        }
    }

    /// Tells the program the address of an allocation node.
    pub(crate) fn answer(&mut self, memory: &Arc<GraphMemory>) {
        let mut allocation: Allocation = self.body();
        allocation.pointer = memory.base;
        self.body = Self::put(self.kind, allocation).body;
    }
}

const _: () = {
    assert!(size_of::<Kernel>() == 56);
    assert!(size_of::<KernelV2>() == 72);
    assert!(size_of::<Set>() == 40);
    assert!(size_of::<Allocation>() == 120);
    assert!(size_of::<Parameters>() == 256);
};

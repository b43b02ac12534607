//! Work that a stream does in its order.

use std::sync::Arc;

use crate::{
    device::host_call::HostCall,
    memory::space::{MemoryCopy, MemoryFill},
    objects::launch::Launch,
};

/// One piece of work for a stream.
#[derive(Debug, Clone)]
pub(crate) enum StreamWork {
    Kernel(Arc<Launch>),
    Copy(MemoryCopy),
    Fill(MemoryFill),
    Call(HostCall),
}

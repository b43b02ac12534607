//! What can be submitted to a stream: done in the stream's order, or captured into a graph.

use std::sync::Arc;

use crate::{
    device::host_call::HostCall,
    memory::space::{MemoryCopy, MemoryFill},
    objects::launch::Launch,
};

/// A unit of work of a stream.
#[derive(Debug, Clone)]
pub(crate) enum StreamWork {
    Kernel(Arc<Launch>),
    Copy(MemoryCopy),
    Fill(MemoryFill),
    Call(HostCall),
}

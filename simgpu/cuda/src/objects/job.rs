//! Work that a stream does in its order.

use std::sync::Arc;

use crate::{
    device::host_call::HostCall,
    memory::space::{Copy, Fill},
    objects::launch::Launch,
};

/// One piece of work for a stream.
#[derive(Debug, Clone)]
pub(crate) enum Job {
    Kernel(Arc<Launch>),
    Copy(Copy),
    Fill(Fill),
    Call(HostCall),
}

//! A cluster's GPU stock from dumps of its nodes and pods, or from the pages of an API server's lists.
//!
//! Objects become the plain values of `gpupool_core::stock`, which knows what they mean.

mod node;
mod pod;

mod taint_effect;

use std::io::Read;

use gpupool_core::stock::{StockNode, StockPod};

use crate::document;
use crate::error::DumpError;

/// Reads a dump of nodes, in the order in which they stand there.
///
/// Nothing that `each` was given means anything until the whole dump has been read: a cut dump shows only then.
pub fn read_nodes(source: impl Read, mut each: impl FnMut(StockNode)) -> Result<(), DumpError> {
    document::read::<node::StockNodes>(source, &mut |object| {
        each(object.into_node()?);
        Ok(())
    })
}

/// Reads a dump of pods, as [`read_nodes`] reads one of nodes.
pub fn read_pods(source: impl Read, mut each: impl FnMut(StockPod)) -> Result<(), DumpError> {
    document::read::<pod::Pods>(source, &mut |object| {
        each(object.into_pod()?);
        Ok(())
    })
}

//! Green contexts: contexts that are given a part of a card's multiprocessors. Nothing is computed, so the part is only
//! remembered; such a context takes memory as any other does.

use crate::{
    error::{CuError, CuResult},
    handles::{Handle, Registry},
    objects::{context::context, stream::TargetStream},
};

/// Multiprocessors of a card that are given to a green context.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Multiprocessors {
    pub(crate) count: u32,
    /// The fewest of a part.
    pub(crate) least: u32,
    /// Of what a part is a multiple.
    pub(crate) step: u32,
}

/// A green context.
#[derive(Debug)]
pub(crate) struct GreenContext {
    pub(crate) context: Handle,
    pub(crate) multiprocessors: Multiprocessors,
}

pub(crate) static DESCRIPTIONS: Registry<Multiprocessors> = Registry::new();
pub(crate) static GREENS: Registry<GreenContext> = Registry::new();

impl Multiprocessors {
    /// `count` multiprocessors of a card of this compute capability.
    pub(crate) const fn of(count: u32, compute: (u32, u32)) -> Self {
        let (least, step) = if compute.0 >= 9 { (8, 8) } else { (4, 2) };
        Self { count, least, step }
    }

    pub(crate) const fn with(self, count: u32) -> Self {
        Self { count, ..self }
    }
}

/// The green context behind a handle.
pub(crate) fn green(handle: Handle) -> CuResult<std::sync::Arc<GreenContext>> {
    GREENS.find(handle).ok_or(CuError::INVALID_CONTEXT)
}

/// The default stream of a green context.
pub(crate) fn default_stream(handle: Handle) -> CuResult<TargetStream> {
    Ok(TargetStream::Default(context(green(handle)?.context)?, false))
}

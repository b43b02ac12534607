//! The end of a context, and of everything that belongs to it.

use crate::{
    error::{CuError, CuResult},
    handles::Handle,
    memory::{graph_memory::note_freed, ipc, pool, space},
    objects::{
        array,
        context::{CONTEXTS, Context},
        event::EVENTS,
        module,
        stream::STREAMS,
    },
};

/// Ends a context: its work is waited for, everything that belongs to it goes, its memory is given back.
pub(crate) fn destroy(handle: Handle) -> CuResult {
    let context = CONTEXTS.remove(handle).map_err(|_| CuError::INVALID_CONTEXT)?;
    if context.check().is_ok() {
        let _ = context.engine().end().wait();
    }
    end_what_belongs_to(&context);
    context.give_memory_back()
}

fn end_what_belongs_to(context: &Context) {
    let handle = context.handle;
    STREAMS.remove_all(|stream| stream.context == handle);
    EVENTS.remove_all(|event| event.context == handle);
    module::end_of_context(handle);
    array::end_of_context(handle);
    for freed in space::release_all(|allocation| allocation.owner.context == handle) {
        note_freed(&freed);
        if let Some(segment) = freed.segment {
            ipc::forget(&segment);
        }
    }
    let card = context.card.index();
    if !CONTEXTS.any(|other| other.card.index() == card) {
        pool::empty_pools_of(card);
    }
}

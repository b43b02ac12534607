//! What ends with what.

use crate::{
    array,
    context::{CONTEXTS, Context},
    event::EVENTS,
    module, opened, pool, space,
    stream::STREAMS,
};

/// Everything that belongs to the context goes with it.
pub(crate) fn end_of_context(context: &Context) {
    let handle = context.handle;
    STREAMS.remove_all(|stream| stream.context == handle);
    EVENTS.remove_all(|event| event.context == handle);
    module::end_of_context(handle);
    array::end_of_context(handle);
    for freed in space::release_all(|allocation| allocation.owner.context == handle) {
        pool::given_back(&freed);
        if let Some(segment) = freed.segment {
            opened::forget(&segment);
        }
    }
    let card = context.card.index();
    if !CONTEXTS.any(|other| other.card.index() == card) {
        pool::empty_pools_of(card);
    }
}

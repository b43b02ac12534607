//! The API server: how it is reached, asked, listed and watched.
//!
//! This room knows bounds, delays and forms of requests, and nothing of what is written or why.

mod access;
mod listing;
mod request;
mod watch_backoff;

pub use access::{ApiServerAccess, ConnectError};
pub use listing::{ListError, ListedKind, list};
pub use request::FIELD_MANAGER;
pub(crate) use request::{bounded, bounded_by};
pub(crate) use watch_backoff::WatchBackoff;

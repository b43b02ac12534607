//! Says once that the API server is away, and once that it is back.

use tracing::{info, warn};

/// Whether something that is watched can be seen at the moment.
#[derive(Debug)]
pub(super) struct Outage {
    what: &'static str,
    away: bool,
}

impl Outage {
    /// It can, as far as is known.
    pub(super) fn of(what: &'static str) -> Self {
        Self { what, away: false }
    }

    /// It can't, for this reason.
    pub(super) fn begins(&mut self, failure: &dyn std::error::Error) {
        if !std::mem::replace(&mut self.away, true) {
            warn!("cannot see {}: {}; everything stays as it is", self.what, causes(failure));
        }
    }

    /// It can again.
    pub(super) fn is_over(&mut self) {
        if std::mem::take(&mut self.away) {
            info!("{} can be seen again", self.what);
        }
    }
}

/// An error with what caused it, unless it says so itself.
pub(super) fn causes(failure: &dyn std::error::Error) -> String {
    let mut text = failure.to_string();
    let mut cause = failure.source();
    while let Some(next) = cause {
        let more = next.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = next.source();
    }
    text
}

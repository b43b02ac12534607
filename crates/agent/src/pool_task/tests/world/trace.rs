//! What happened, for a person: written only in a life that is lived again because it failed.

use std::fmt::Arguments;

#[derive(Debug, Default)]
pub(super) struct Trace {
    lines: Option<Vec<String>>,
}

impl Trace {
    pub(super) fn new(is_kept: bool) -> Self {
        Self { lines: is_kept.then(Vec::new) }
    }

    pub(super) fn is_kept(&self) -> bool {
        self.lines.is_some()
    }

    pub(super) fn line(&mut self, now: u64, what: Arguments<'_>) {
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:>8}.{:03}  {what}", now / 1000, now % 1000));
        }
    }

    pub(super) fn text(self) -> String {
        self.lines.unwrap_or_default().join("\n")
    }
}

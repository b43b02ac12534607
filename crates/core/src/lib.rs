//! Pure decisions: what a share of a card is, who of a node's pods holds which card when, what a node is for,
//! and whether it advertises that.
//!
//! Nothing here knows a clock, a file, a socket or Kubernetes. Time and events come in as arguments, decisions
//! go out as values, and a refusal is a value with the sentence that the user reads. The same events give the
//! same decisions, so every run can be replayed.

pub mod checker;
pub mod placement;
pub mod stock;

pub mod pool;
pub mod sharing;

pub mod node_use;

pub mod names;
pub mod quantity;
pub mod share;

pub mod one_line;

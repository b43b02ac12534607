//! The pool through its public face.

#![allow(clippy::unwrap_used, clippy::panic, reason = "this is all test code, its helpers included")]

mod cards;
mod exhaustive;
mod fixed;
mod harness;
mod membership;
mod naive;
mod occupied;
mod ops;
mod oracle;
mod order;
mod preemption;
mod published_example;
mod waiting_bound;
mod watch;
mod written_down;

//! The pool through its public face.

mod cards;
mod fixed;
mod harness;
mod membership;
mod naive;
mod ops;
mod oracle;
mod order;
mod preemption;
mod published_example;
mod watch;
mod written_down;

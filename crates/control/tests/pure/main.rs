//! The decisions and the index, without an API server: objects in, writes out.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod decisions;
mod index;
mod sharing;
mod support;

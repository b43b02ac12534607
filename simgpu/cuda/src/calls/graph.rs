//! The entry points about graphs: building them, changing what their nodes do, launching them.

mod build;
mod exec;
mod node;
mod params;

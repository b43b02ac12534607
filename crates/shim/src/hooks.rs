//! What the shim does instead of a call of CUDA or NVML, or around it: a file per family.
//!
//! A hook is a function of the same form as the one it replaces, or for most families one that is handed the call's
//! arguments as words ([`Arguments`](crate::real::arguments::Arguments)). Which row of the table leads to which hook is
//! said in `dispatch`; hooks don't know their names there.

pub(crate) mod arrays;
pub(crate) mod contexts;
pub(crate) mod external;
pub(crate) mod graphs;
pub(crate) mod identity;
pub(crate) mod ipc;
pub(crate) mod launches;
pub(crate) mod memory;
pub(crate) mod memory_pools;
pub(crate) mod modules;
pub(crate) mod nvml;
pub(crate) mod virtual_memory;

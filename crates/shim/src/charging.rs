//! What several hooks do alike to keep the pod's account right: announce, let the driver work, charge or undo.
//!
//! * [`allocations`]: an allocation of known size from its announcement to its charge;
//! * [`physical_memory`]: handles and mappings of physical memory, and who is charged for it;
//! * [`memory_pools`]: what the driver reserves for pools and graphs;
//! * [`contexts`]: whose memory an allocation is;
//! * [`launch_times`]: what launches cost.
//!
//! This room knows no entry point: which call does what is the hooks' business.

pub(crate) mod allocations;
pub(crate) mod contexts;
pub(crate) mod launch_times;
pub(crate) mod memory_pools;
pub(crate) mod physical_memory;

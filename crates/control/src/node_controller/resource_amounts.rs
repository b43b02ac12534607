//! Amounts of a node's resources.

use std::collections::BTreeMap;

use gpupool_core::quantity::Quantity;

/// Amounts by resource name, as in `status.capacity` and `status.allocatable`.
pub type ResourceAmounts = BTreeMap<String, Quantity>;

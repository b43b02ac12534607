//! One per node: drives the pool, knows who is calling, hands out leases.

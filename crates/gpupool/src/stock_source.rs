//! Where `inventory` and `explain` take a cluster's stock from: two dumps of its nodes and pods, or the cluster itself.

#[cfg(feature = "kubernetes")]
mod cluster;

mod dumps;

#[cfg(feature = "kubernetes")]
pub(crate) use cluster::StockArgs;
#[cfg(not(feature = "kubernetes"))]
pub(crate) use dumps::StockArgs;

//! Reads dumps of Kubernetes objects, as `kubectl get … -o json` and `-o yaml` save them and as an API server lists
//! them: the nodes that `gpupool check-config` judges, and the nodes and pods that make up a cluster's stock.
//!
//! What is decided about them is `gpupool-core`'s; how it is printed, the binary's. This crate knows no cluster.

pub mod check_config;
pub mod stock;

mod document;

mod fields;

mod error;

pub use document::open;
pub use error::{AmountFault, DocumentFault, DumpError, ObjectError, OtherKind, ResourceError, TextFault};

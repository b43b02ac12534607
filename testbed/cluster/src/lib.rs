//! The proving ground: starts and stops real Kubernetes clusters on one machine, for tests and for people.
//!
//! A cluster here is the published etcd, API server, scheduler and controller-manager, with kwok keeping the
//! nodes that have no kubelet. It needs no root, no container engine and no image registry, and listens on
//! 127.0.0.1 only. The programs are built from their Go modules the first time (minutes) and kept in a cache
//! outside the target folder, so that later clusters start in seconds.
//!
//! ```no_run
//! use gpupool_testbed::{Cluster, Node};
//!
//! let cluster = Cluster::builder().node(Node::new("n1").capacity("nvidia.com/gpu", "4")).start()?;
//! println!("{}", cluster.kubectl(["get", "nodes"])?);
//! cluster.stop()?;
//! # Ok::<(), gpupool_testbed::Error>(())
//! ```
//!
//! This room knows nothing of gpupool: it offers a Kubernetes, and what runs on it is the caller's affair.

mod address;
mod authority;
mod cards;
mod cluster;
mod component;
mod containerd;
mod control_group;
mod control_plane;
mod error;
mod home;
mod host;
mod hosts;
mod image;
mod kubectl;
mod kubelet;
mod machine;
mod network;
mod node;
mod place;
mod programs;
mod readiness;
mod recipe;
mod standing;
mod tied;

pub use cards::{CDI_DEVICE, DRIVER, STATE};
pub use cluster::{Builder, Cluster};
pub use error::Error;
pub use home::{holder, remove_remains};
pub use image::Image;
pub use kubectl::Kubectl;
pub use machine::{KubeletNode, Machine, SimulatedCards};
pub use node::Node;
pub use programs::{cache, folder_of};
pub use recipe::Tool;
pub use standing::{Health, Part, Standing};
pub use tied::spawn as spawn_tied;

//! The proving ground: starts and stops real Kubernetes clusters on one machine, for tests and for people.
//!
//! A cluster here is the published etcd, API server, scheduler and controller-manager, with kwok keeping the
//! nodes that have no kubelet. It needs no root, no container engine and no image registry, and listens on
//! 127.0.0.1 only. The programs are built from their Go modules the first time (minutes) and kept in a cache
//! outside the target folder, so that later clusters start in seconds.
//!
//! ```no_run
//! use gpupool_testbed::{Cluster, KwokNode};
//!
//! let cluster = Cluster::builder().node(KwokNode::new("n1").capacity("nvidia.com/gpu", "4")).start()?;
//! println!("{}", cluster.kubectl(["get", "nodes"])?);
//! cluster.stop()?;
//! # Ok::<(), gpupool_testbed::Error>(())
//! ```
//!
//! # Nodes with a kubelet
//!
//! [`Builder::kubelet_node`] adds a node with a real kubelet and a containerd of its own. That needs root; without it the
//! error says so. Two nodes stand in about 10 seconds and take about half a
//! gigabyte with their control plane.
//!
//! **What a node is.** It has its own processes, mounts and network (namespaces), its own `/run`, `/var/lib` and
//! `/var/log`, and the machine's programs and devices. A pod with `hostPID`, `hostPath` or `hostNetwork` sees its node as it
//! would see a real one, and no other node. The kubelet reports any [`Machine`]; nothing holds pods to it, nothing is
//! evicted, there are no usage metrics. It patches its status every 2 seconds when something has changed.
//!
//! **What reaches what.** The control plane has an address, `198.18.K.2`, that this machine, the nodes and all pods
//! reach; the administrator's kubeconfig has it. Inside the cluster everything is as on any other:
//!
//! - Pods find the API server by `KUBERNETES_SERVICE_HOST` and `…_PORT` as the kubelet sets them (`10.96.0.1:443`), with
//!   `hostNetwork` and without. The authority is in the service account's volume.
//! - Service addresses work from pods, nodes, scheduler and API server: a kube-proxy (iptables) in the control plane's
//!   network sees to that. So a webhook's `clientConfig.service` works as it is, and a scheduler extender's
//!   `urlPrefix` is `https://<clusterIP of the service>:<port>`, with a `clusterIP` that the chart or the caller sets or
//!   looks up. There is no cluster DNS: names of services are not resolved anywhere.
//! - Pods reach each other, on one node or on two. `kubectl logs`, `exec`, `port-forward` and `get --raw …/proxy/…` work.
//! - A server on this machine (a test's own) is reached at [`Cluster::machine_address`] by API server and nodes, not by
//!   pods. Nothing in the cluster reaches anything else outside.
//!
//! **Images** are made on the spot from files of this machine: [`Image`]. Nothing is pulled, so pods need
//! `imagePullPolicy: IfNotPresent` where the tag is `latest`.
//!
//! **Simulated cards** ([`KubeletNode::cards`]) lie on the node as a driver would: libraries in `/var/lib/simgpu/lib`,
//! `nvidia-smi` in `/var/lib/simgpu/bin`, state in `/var/lib/simgpu/state/cards` (environment: `SIMGPU_STATE`), and a CDI
//! specification in `/var/run/cdi` with the device [`CDI_DEVICE`], which brings all of it into a container under the usual
//! names. A pod that is given no device (an agent's) takes the folder as a `hostPath` and sets `LD_LIBRARY_PATH`
//! and `SIMGPU_STATE` itself. All processes of a node share its cards.
//!
//! **The scheduler** runs with a configuration of the caller's ([`Builder::scheduler`],
//! [`Cluster::configure_scheduler`]). **Faults**: [`Cluster::kill`] and [`Cluster::start_again`] take every component,
//! `kubelet@NODE` and `containerd@NODE` included; containers survive both.
//!
//! **Nothing stays behind.** The kernel ends everything that ran on a node with this process, however it ends, and
//! mounts, networks and firewall rules go with the namespaces they are in. What a kubelet would change on the machine it
//! finds changed already, in a private view. The folder, the (then empty) control groups and the network device of a
//! cluster that was killed are removed by the next one, or by [`remove_remains`].
//!
//! Control groups of version 1 (also beside version 2) work as they are. On version 2 alone the controllers `cpu`,
//! `cpuset`, `memory` and `pids` must be switched on in the root's `cgroup.subtree_control`, as systemd does; the error
//! names those that are missing. That was only tried on version 1.
//!
//! But for [`Product`], this room knows nothing of gpupool: it offers a Kubernetes, and what runs on it is the caller's
//! affair.

mod helm;
mod product;

mod cluster;

mod description;
mod node;

mod control_plane;
mod readiness;

mod host;

mod cards;
mod component;
mod kubectl;
mod kubelet;

mod authority;
mod containerd;
mod machine;

mod home;

mod address;
mod network;

mod control_group;
mod image;
mod programs;

mod recipe;

mod tied;

mod place;

mod error;

pub use cards::{CDI_DEVICE, DRIVER, STATE};
pub use cluster::{Builder, Cluster};
pub use control_group::control_group;
pub use description::{ClusterDescription, ComponentDescription, Health};
pub use error::Error;
pub use home::{holder, remove_remains};
pub use image::Image;
pub use kubectl::Kubectl;
pub use machine::{KubeletNode, Machine, SimulatedCards};
pub use node::KwokNode;
pub use product::{NAMESPACE, PUBLISHED_IMAGE, Product};
pub use programs::{cache, folder_of};
pub use recipe::Tool;
pub use tied::spawn as spawn_tied;

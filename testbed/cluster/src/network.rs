//! The network of a cluster with kubelets: one namespace for the control plane, one for each node.
//!
//! ```text
//! machine             control plane                node-1                     node-2
//! gpupoolK ───────────── machine ┐
//! 198.18.K.1             bridge `nodes` ─────────── eth0 198.18.K.11          eth0 198.18.K.12
//!                        198.18.K.2                 bridge `pods`             bridge `pods`
//!                        lo: 10.96.0.1              172.31.1.1/24             172.31.2.1/24
//! ```
//!
//! The first service address belongs to the control plane itself, so pods reach the API server as on any cluster,
//! and so do processes of the machine under 198.18.K.2; there is no way out to anywhere else. 198.18.0.0/15 is kept
//! for benchmarks of networks (RFC 2544): no real network uses it. On the machine appears one device, `gpupoolK`;
//! it goes with the cluster.

use std::fs::{self, File};
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use crate::control_group::control_group;
use crate::image::find_program;
use crate::place::{Place, new_network};
use crate::{Error, tied};

/// How many clusters with kubelets a machine can have at the same time.
const CLUSTERS: u8 = 200;

/// How many nodes fit into a cluster's network.
pub(crate) const MOST_NODES: u8 = 200;

/// Host part of the first node's address.
const FIRST_NODE: u8 = 11;

/// Service addresses. What goes to one is turned to a pod by kube-proxy.
pub(crate) const SERVICES: &str = "10.96.0.0/16";

/// The control plane passes on what nodes send each other. A packet whose address kube-proxy has changed is routed, also back
/// to the node it came from: a bridge that looks at addresses itself would drop it. The settings are the namespace's
/// own; the second exists only where the bridge filter is loaded.
const FORWARD: &str = "set -e; echo 1 > /proc/sys/net/ipv4/ip_forward; \
     filter=/proc/sys/net/bridge/bridge-nf-call-iptables; if [ -e $filter ]; then echo 0 > $filter; fi";

/// Routes of what the control plane sends itself. To the kernel a service address needs one before kube-proxy's turn;
/// what nodes send needs none, and is refused at once where kube-proxy does not know the service yet.
const OUTGOING: &str = "100";

/// The service address of the API server: the first of the service range.
pub(crate) const API_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);

/// A cluster's network.
#[derive(Debug)]
pub(crate) struct Network {
    number: u8,
    namespace: Arc<File>,
}

/// A node's part of it.
#[derive(Clone, Debug)]
pub(crate) struct NodeNetwork {
    /// The node's own namespace.
    pub(crate) namespace: Arc<File>,
    /// The node's address, which the machine and all nodes reach.
    pub(crate) address: Ipv4Addr,
    /// Addresses of its pods, which the control plane and all nodes reach.
    pub(crate) pods: String,
}

impl Network {
    /// Makes the network of the cluster in this folder, and its device on the machine.
    pub(crate) fn make(folder: &Path) -> Result<Self, Error> {
        let namespace = new_network().map_err(failed("make a network namespace"))?;
        for number in 0..CLUSTERS {
            let network = Self { number, namespace: Arc::clone(&namespace) };
            if network.connect_machine()? {
                network.lay_out(&control_group(folder))?;
                return Ok(network);
            }
        }
        Err(Error::Network {
            what: "find a free device name on this machine".to_owned(),
            why: format!("gpupool0 to gpupool{} are all taken", CLUSTERS - 1),
        })
    }

    /// Where the control plane's programs run.
    pub(crate) fn place(&self) -> Place {
        Place::Network(Arc::clone(&self.namespace))
    }

    /// The control plane's address.
    pub(crate) fn control_plane(&self) -> Ipv4Addr {
        self.address(2)
    }

    /// The machine's address as the control plane sees it.
    pub(crate) fn machine(&self) -> Ipv4Addr {
        self.address(1)
    }

    /// Makes a node's namespace and connects it; `index` counts from 0.
    pub(crate) fn add_node(&self, index: u8) -> Result<NodeNetwork, Error> {
        let namespace = new_network().map_err(failed("make a network namespace"))?;
        let number = index + 1;
        let node = NodeNetwork {
            namespace,
            address: self.address(FIRST_NODE + index),
            pods: format!("172.31.{number}.0/24"),
        };
        let (address, gateway) = (node.address, self.control_plane());
        let outside = format!(
            "link add node{number} type veth peer name eth0 netns {}\n\
             link set node{number} master nodes up\n\
             route add {} via {address}\n",
            path(&node.namespace),
            node.pods,
        );
        let inside = format!(
            "link set lo up\n\
             address add {address}/24 dev eth0\n\
             link set eth0 up\n\
             route add default via {gateway}\n"
        );
        ip(&self.place(), &outside)?;
        ip(&Place::Network(Arc::clone(&node.namespace)), &inside)?;
        Ok(node)
    }

    fn address(&self, host: u8) -> Ipv4Addr {
        Ipv4Addr::new(198, 18, self.number, host)
    }

    /// Makes the pair of devices between machine and control plane; `false` when the name is another cluster's.
    fn connect_machine(&self) -> Result<bool, Error> {
        let (number, namespace) = (self.number, path(&self.namespace));
        let pair = format!("link add gpupool{number} type veth peer name machine netns {namespace}\n");
        match ip(&Place::Here, &pair) {
            Err(Error::Network { why, .. }) if why.contains("File exists") => Ok(false),
            made => made.map(|()| true),
        }
    }

    /// The device on the machine is marked with `owner`, so that it is found again.
    fn lay_out(&self, owner: &str) -> Result<(), Error> {
        let (number, machine, control_plane) = (self.number, self.machine(), self.control_plane());
        let inside = format!(
            "link set lo up\n\
             address add {API_SERVICE}/32 dev lo\n\
             link add nodes type bridge\n\
             link set machine master nodes up\n\
             address add {control_plane}/24 dev nodes\n\
             link set nodes up\n\
             route add {SERVICES} dev nodes table {OUTGOING}\n\
             rule add iif lo lookup {OUTGOING}\n"
        );
        ip(&self.place(), &inside)?;
        let outside = format!(
            "link set gpupool{number} alias {owner}\n\
             address add {machine}/24 dev gpupool{number}\n\
             link set gpupool{number} up\n"
        );
        ip(&Place::Here, &outside)?;
        let mut forward = Command::new("sh");
        forward.args(["-c", FORWARD]);
        run(&self.place(), forward, "")
    }
}

/// Removes the device of the cluster in this folder from the machine. The kernel does so by itself, but only when the last
/// connection in the network has timed out: a minute or two after a cluster was killed.
pub(crate) fn remove_device(folder: &Path) -> Result<(), Error> {
    let owner = control_group(folder);
    for device in fs::read_dir("/sys/class/net").into_iter().flatten().flatten() {
        let alias = fs::read_to_string(device.path().join("ifalias")).unwrap_or_default();
        if alias.trim() == owner {
            let name = device.file_name();
            match ip(&Place::Here, &format!("link delete {}\n", name.to_string_lossy())) {
                // The kernel was quicker.
                Err(_) if !device.path().exists() => (),
                deleted => deleted?,
            }
        }
    }
    Ok(())
}

/// The namespace as another process can open it.
fn path(namespace: &File) -> String {
    use std::os::fd::AsRawFd;
    format!("/proc/{}/fd/{}", std::process::id(), namespace.as_raw_fd())
}

/// Has iproute2 do this, one command a line.
fn ip(place: &Place, commands: &str) -> Result<(), Error> {
    let mut program = Command::new(find_program("ip")?);
    program.args(["-batch", "-"]);
    run(place, program, commands)
}

/// Runs a program in a place with this on its standard input; an error with what it said when it fails.
fn run(place: &Place, mut program: Command, input: &str) -> Result<(), Error> {
    let what = format!("set up the cluster's network with `{}`", input.trim_end());
    program.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = tied::spawn_in(program, place).map_err(failed(&what))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes()).map_err(failed(&what))?;
    }
    let output = child.wait_with_output().map_err(failed(&what))?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::Network { what, why: String::from_utf8_lossy(&output.stderr).trim_end().to_owned() })
}

fn failed(what: &str) -> impl FnOnce(io::Error) -> Error {
    let what = what.to_owned();
    move |error| Error::Network { what, why: error.to_string() }
}

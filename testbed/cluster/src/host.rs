//! The machine that a node with a kubelet runs on: its folders, its settings, and how its programs are started.
//!
//! Of the real machine a node sees the programs and the devices, but `/run`, `/var/lib` and `/var/log` are its own, as are
//! its processes, its mounts and its network. So two nodes never meet in a socket, a device-plugin folder or a port,
//! and a pod with `hostPath`, `hostPID` or `hostNetwork` sees its node and nobody else's.

use std::fs;
use std::path::{Path, PathBuf};

use crate::authority::{Authority, Identity};
use crate::component::Plan;
use crate::kubelet::{KubeletSettings, PORT, TUNABLES};
use crate::machine::KubeletNode;
use crate::network::NodeNetwork;
use crate::place::Place;
use crate::{Error, cards, containerd, home, kubelet};

/// Folders of the machine that a node has its own of.
const OWN: &[&str] = &["run", "var/lib", "var/log"];

/// Where the testbed's own files are on a node.
const SETTINGS: &str = "run/testbed";

/// By which programs tell one start of the machine from another: a node has its own.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// What programs that run as root find others by, whatever the caller's is.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Becomes a node's first process: with a private view of the machine, it gives way to `init` ($2) once the node's
/// folder ($1) is in place. What it makes at the end says that the node can be entered.
const BECOME: &str = r#"
set -eu
mount --make-rprivate /
mount -t proc proc /proc
for own in $OWN; do mount --bind "$1/$own" "/$own"; done
for tunable in $TUNABLES; do mount --bind "$1/tunables/${tunable##*/}" "$tunable"; done
mount --make-rshared /
echo 1 > /proc/sys/net/ipv4/ip_forward
: > /run/testbed/entered
exec "$2"
"#;

/// A node's machine.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) node: KubeletNode,
    /// What the node sees as `/`, as far as it is its own.
    root: PathBuf,
    network: NodeNetwork,
}

impl Host {
    /// Lays out the folders and settings of a node.
    ///
    /// `server` is the API server's URL, `control_group` the group that pods' groups are made in.
    pub(crate) fn prepare(
        node: &KubeletNode,
        folder: &Path,
        network: NodeNetwork,
        control_group: &str,
        authority: &Authority,
        server: &str,
    ) -> Result<Self, Error> {
        let host = Self { node: node.clone(), root: folder.join("nodes").join(node.name()), network };
        for folder in OWN.iter().chain(&["tunables", "run/testbed/network"]) {
            create(&host.root.join(folder))?;
        }
        for (path, value) in TUNABLES {
            write(&host.tunable(path), value)?;
        }
        host.write_boot_id()?;
        let user = authority.client(&format!("system:node:{}", node.name()), Some("system:nodes"))?;
        let serving = authority.server(&[node.name().to_owned(), host.network.address.to_string()])?;
        host.write_settings(control_group, authority, server, &user, &serving)?;
        if let Some(cards) = &node.cards {
            cards::install(cards, &host.root)?;
        }
        Ok(host)
    }

    fn write_settings(
        &self,
        control_group: &str,
        authority: &Authority,
        server: &str,
        user: &Identity,
        serving: &Identity,
    ) -> Result<(), Error> {
        let inside = |name: &str| Path::new("/").join(SETTINGS).join(name);
        let kubelet = kubelet::configuration(&KubeletSettings {
            address: self.network.address,
            control_group,
            authority: &inside("ca.crt"),
            certificate: &inside("kubelet.crt"),
            key: &inside("kubelet.key"),
            resolver: &inside("resolv.conf"),
        });
        let machine = serde_json::json!({
            "cpu": self.node.machine.cpu,
            "memory": self.node.machine.memory,
            "ephemeralStorage": self.node.machine.ephemeral_storage,
            "machineID": self.node.name(),
        });
        let network = inside("network").display().to_string();
        for (name, text) in [
            ("network/pods.conflist", containerd::pod_network(&self.network.pods)),
            ("containerd.toml", containerd::configuration(&network)),
            ("kubelet.json", kubelet),
            ("kubeconfig", crate::authority::kubeconfig(server, &authority.certificate(), user)),
            ("machine.json", machine.to_string()),
            ("ca.crt", authority.certificate()),
            ("kubelet.crt", serving.certificate.clone()),
            ("kubelet.key", serving.key.clone()),
            // Pods look up no names; what the machine's own file says may point into a folder that is hidden.
            ("resolv.conf", "nameserver 10.96.0.10\n".to_owned()),
        ] {
            home::write_private(&self.settings().join(name), &text)?;
        }
        Ok(())
    }

    /// What the node has in place of a file of the kernel's.
    fn tunable(&self, path: &str) -> PathBuf {
        self.root.join("tunables").join(Path::new(path).file_name().unwrap_or_default())
    }

    /// The machine starts, as far as its processes can tell.
    fn write_boot_id(&self) -> Result<(), Error> {
        // The kernel makes another at each reading.
        let path = Path::new("/proc/sys/kernel/random/uuid");
        let id = fs::read_to_string(path).map_err(Error::file("read", path))?;
        write(&self.tunable(BOOT_ID), &id)
    }

    /// What a machine's start leaves of its folders: nothing in `/run` but what the testbed put there, the driver's
    /// specification as its own service writes it at every start, and another boot id.
    pub(crate) fn forget_boot(&self) -> Result<(), Error> {
        let run = self.root.join("run");
        let list = fs::read_dir(&run).map_err(Error::file("read", &run))?;
        for entry in list.filter_map(Result::ok) {
            let path = entry.path();
            if path == self.settings() {
                continue;
            }
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let removed = if is_folder { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.map_err(Error::file("remove", path))?;
        }
        let entered = self.entered();
        fs::remove_file(&entered).map_err(Error::file("remove", entered))?;
        self.write_boot_id()?;
        self.node.cards.as_ref().map_or(Ok(()), |cards| cards::install(cards, &self.root))
    }

    /// A file of the node, as a process outside finds it; only what is below the node's own folders.
    pub(crate) fn path(&self, on_node: &Path) -> PathBuf {
        self.root.join(on_node.strip_prefix("/").unwrap_or(on_node))
    }

    fn settings(&self) -> PathBuf {
        self.root.join(SETTINGS)
    }

    /// Appears when the node can be entered.
    pub(crate) fn entered(&self) -> PathBuf {
        self.settings().join("entered")
    }

    /// Where containerd listens, as a process outside finds it.
    pub(crate) fn runtime_socket(&self) -> PathBuf {
        self.path(Path::new(containerd::SOCKET))
    }

    /// The node's first process; `init` is the program it becomes.
    pub(crate) fn init(&self, init: &Path) -> Plan {
        let mut plan =
            self.plan("init", Path::new("/bin/sh"), Place::NewNode(self.network.namespace.clone()));
        plan.arguments =
            ["-c".into(), BECOME.into(), "node".into(), self.root.clone().into(), init.into()].into();
        let tunables: Vec<&str> = TUNABLES.iter().map(|(path, _)| *path).chain([BOOT_ID]).collect();
        plan.environment.push(("OWN".into(), OWN.join(" ").into()));
        plan.environment.push(("TUNABLES".into(), tunables.join(" ").into()));
        plan
    }

    /// containerd, of the programs in this folder.
    pub(crate) fn containerd(&self, programs: &Path, place: Place) -> Plan {
        let mut plan = self.plan("containerd", &programs.join("containerd"), place);
        plan.flag("--config", Path::new("/").join(SETTINGS).join("containerd.toml"));
        plan
    }

    /// The kubelet, of the program with the Kubernetes components.
    pub(crate) fn kubelet(&self, kube: &Path, place: Place) -> Plan {
        let mut plan = self.plan("kubelet", kube, place);
        let settings = Path::new("/").join(SETTINGS);
        plan.arguments.push("kubelet".into());
        plan.flag("--config", settings.join("kubelet.json"));
        plan.flag("--kubeconfig", settings.join("kubeconfig"));
        plan.flag("--machine", settings.join("machine.json"));
        plan.flag("--hostname-override", self.node.name());
        plan.flag("--node-ip", self.network.address.to_string());
        let labels: Vec<String> =
            self.node.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        plan.flag("--node-labels", labels.join(","));
        plan.address = Some(format!("https://{}:{PORT}/healthz", self.network.address));
        plan
    }

    /// A component of this node, without arguments yet.
    fn plan(&self, what: &str, program: &Path, place: Place) -> Plan {
        Plan {
            name: format!("{what}@{}", self.node.name()),
            program: program.to_owned(),
            arguments: Vec::new(),
            environment: vec![("PATH".into(), PATH.into())],
            address: None,
            place,
        }
    }
}

fn create(folder: &Path) -> Result<(), Error> {
    fs::create_dir_all(folder).map_err(Error::file("create", folder))
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text).map_err(Error::file("write", path))
}

//! The nodes with a kubelet of a cluster: starting them, bringing images onto them, and what tests do on them.

use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use rustix::process::{Pid, PidfdFlags, getuid, pidfd_open};

use super::Cluster;
use crate::authority::Authority;
use crate::component::Component;
use crate::control_group::ControlGroup;
use crate::host::Host;
use crate::image::{self, Image, find_program};
use crate::network::{MOST_NODES, Network};
use crate::place::Place;
use crate::readiness::{self, Reaped};
use crate::{Error, KubeletNode, Tool, containerd, folder_of, tied};

/// What must be on the machine, beside the programs that are built.
const NEEDED: &[&str] = &["mount", "ip", "runc", "iptables"];

/// What nodes with a kubelet are made with.
#[derive(Debug)]
pub(crate) struct Stock {
    /// The folder with containerd's programs.
    containerd: PathBuf,
    /// The first process of nodes and pods.
    init: PathBuf,
    images: Vec<Image>,
}

impl Stock {
    /// Gathers it, builds what is not there yet, or says what is missing.
    pub(crate) fn gather(mut images: Vec<Image>) -> Result<Self, Error> {
        if !getuid().is_root() {
            return Err(Error::NotRoot);
        }
        NEEDED.iter().try_for_each(|name| find_program(name).map(drop))?;
        let plugins = ["/usr/lib/cni", "/opt/cni/bin"].map(Path::new);
        for name in ["bridge", "host-local"] {
            if !plugins.iter().any(|folder| folder.join(name).exists()) {
                return Err(Error::NoProgram { name: name.to_owned() });
            }
        }
        let init = folder_of(Tool::Init)?.join("init");
        images.push(Image::new(containerd::PAUSE).file("/init", &init).entrypoint(["/init"]));
        Ok(Self { containerd: folder_of(Tool::Containerd)?, init, images })
    }
}

/// The machines of a cluster's nodes with a kubelet.
#[derive(Debug)]
pub(crate) struct Hosts {
    stock: Stock,
    network: Network,
    authority: Authority,
    machines: Vec<Host>,
}

impl Hosts {
    /// None yet.
    pub(crate) fn new(stock: Stock, network: Network, authority: Authority) -> Self {
        Self { stock, network, authority, machines: Vec::new() }
    }
}

impl Cluster {
    /// Starts the machines of these nodes with containerd on them.
    pub(crate) fn start_hosts(&mut self, nodes: &[KubeletNode]) -> Result<(), Error> {
        let Some(mut hosts) = self.hosts.take() else { return Ok(()) };
        let started = self.start_hosts_of(&mut hosts, nodes);
        self.hosts = Some(hosts);
        started
    }

    fn start_hosts_of(&mut self, hosts: &mut Hosts, nodes: &[KubeletNode]) -> Result<(), Error> {
        let groups = ControlGroup::of(&self.folder);
        let server = self.addresses.server();
        let (init, containerd) = (hosts.stock.init.clone(), hosts.stock.containerd.clone());
        let first = hosts.machines.len();
        for (index, node) in nodes.iter().enumerate() {
            let too_many = |_| Error::TooManyNodes { most: MOST_NODES };
            let index = u8::try_from(first + index).map_err(too_many)?;
            if index >= MOST_NODES {
                return Err(Error::TooManyNodes { most: MOST_NODES });
            }
            let network = hosts.network.add_node(index)?;
            let group = groups.make(node.name())?;
            let host = Host::prepare(node, &self.folder, network, &group, &hosts.authority, &server)?;
            self.start_component(host.init(&init))?;
            hosts.machines.push(host);
        }
        for host in &hosts.machines[first..] {
            readiness::file(&mut self.components, &host.entered())?;
            let place = self.place_of(host)?;
            self.start_component(host.containerd(&containerd, place))?;
        }
        Ok(())
    }

    /// Cuts a node's power and starts its machine again, with containerd and without a kubelet, which
    /// [`Cluster::start_again`] starts.
    ///
    /// Every process of the node is gone, with its mounts, its `/run` and its boot id; `/var/lib` is as it was. Programs that
    /// [`Cluster::spawn_on`] started there must have been killed and waited for before: the kernel keeps a node's first process
    /// until the last of its others has been. They are the caller's to start again.
    pub fn reboot(&mut self, node: &str) -> Result<(), Error> {
        for part in ["kubelet", "containerd", "init"] {
            self.kill(&format!("{part}@{node}"))?;
        }
        let Some(hosts) = self.hosts.take() else { return Ok(()) };
        let booted = hosts.machines.iter().filter(|host| host.node.name() == node).try_for_each(|host| {
            host.forget_boot()?;
            self.component(&format!("init@{node}"))?.start_again()?;
            readiness::file(&mut self.components, &host.entered())?;
            let place = self.place_of(host)?;
            let kubelet = host.kubelet(&self.programs.0, place.clone());
            self.component(&format!("containerd@{node}"))?
                .start_as(host.containerd(&hosts.stock.containerd, place))?;
            self.component(&format!("kubelet@{node}"))?.plan_as(kubelet);
            readiness::file(&mut self.components, &host.runtime_socket())
        });
        self.hosts = Some(hosts);
        booted?;
        self.description().write(&self.folder, true)
    }

    /// Starts to bring the cluster's images onto these nodes; gives the programs that do it.
    pub(crate) fn import_images(&mut self, nodes: &[KubeletNode]) -> Result<Vec<Reaped>, Error> {
        let Some(hosts) = self.hosts.take() else { return Ok(Vec::new()) };
        let imported = self.import_images_of(&hosts, nodes);
        self.hosts = Some(hosts);
        imported
    }

    fn import_images_of(&mut self, hosts: &Hosts, nodes: &[KubeletNode]) -> Result<Vec<Reaped>, Error> {
        let archive = self.folder.join("images.tar");
        if !archive.exists() {
            image::write(&hosts.stock.images, &archive, &self.folder)?;
        }
        let ctr = hosts.stock.containerd.join("ctr");
        let import = |host: &Host| {
            readiness::file(&mut self.components, &host.runtime_socket())?;
            let mut command = Command::new(&ctr);
            command.args(["--address", containerd::SOCKET, "--namespace", "k8s.io", "images", "import"]);
            command.arg(&archive);
            let place = self.place_of(host)?;
            readiness::start_waiting(command, &place)
        };
        hosts.of(nodes).map(import).collect()
    }

    /// Starts the kubelets of these nodes. The API server must be ready.
    pub(crate) fn start_kubelets(&mut self, nodes: &[KubeletNode]) -> Result<(), Error> {
        let Some(hosts) = self.hosts.take() else { return Ok(()) };
        let kube = self.programs.0.clone();
        let started = hosts.of(nodes).try_for_each(|host| {
            let place = self.place_of(host)?;
            self.start_component(host.kubelet(&kube, place))
        });
        self.hosts = Some(hosts);
        started
    }

    /// Waits until these nodes have their images and take pods.
    pub(crate) fn wait_for_kubelets(
        &mut self,
        nodes: &[KubeletNode],
        images: Vec<Reaped>,
    ) -> Result<(), Error> {
        for import in images {
            readiness::wait_for(&mut self.components, "a node did not take its images", import)?;
        }
        let names: Vec<&str> = nodes.iter().map(KubeletNode::name).collect();
        if names.is_empty() {
            return Ok(());
        }
        readiness::nodes(&mut self.components, &self.kubectl, &names)
    }

    /// Starts a program on a node, among its processes, with its mounts and its network; it ends with this process.
    ///
    /// Its working directory is `/`. Programs are those of this machine.
    pub fn spawn_on(&self, node: &str, command: Command) -> Result<Child, Error> {
        let place = self.place_of(self.host(node)?)?;
        let name = command.get_program().to_string_lossy().into_owned();
        tied::spawn_in(command, &place).map_err(|source| Error::Spawn { name, source })
    }

    /// Starts a container on a node past the kubelet, with these CDI devices; its output and end are the process's.
    pub fn spawn_container(
        &self,
        node: &str,
        id: &str,
        image: &str,
        devices: &[&str],
        arguments: &[&str],
    ) -> Result<Child, Error> {
        let mut ctr = Command::new(folder_of(Tool::Containerd)?.join("ctr"));
        ctr.args(["--address", containerd::SOCKET, "--namespace", "k8s.io", "run", "--rm", "--cgroup"]);
        ctr.arg(format!("{}/{id}", ControlGroup::of(&self.folder).path_of(node)));
        for device in devices {
            ctr.args(["--device", device]);
        }
        ctr.args([image, id]).args(arguments);
        ctr.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.spawn_on(node, ctr)
    }

    /// Where a process of this machine finds a file of a node; only files in `/run`, `/var/lib` and `/var/log`.
    pub fn path_on(&self, node: &str, path: impl AsRef<Path>) -> Result<PathBuf, Error> {
        Ok(self.host(node)?.path(path.as_ref()))
    }

    /// This machine's address as the control plane and the nodes see it; `None` without nodes with a kubelet, where
    /// that is 127.0.0.1.
    pub fn machine_address(&self) -> Option<Ipv4Addr> {
        self.hosts.as_ref().map(|hosts| hosts.network.machine())
    }

    fn host(&self, node: &str) -> Result<&Host, Error> {
        let hosts = self.hosts.iter().flat_map(|hosts| &hosts.machines);
        let names: Vec<&str> = hosts.clone().map(|host| host.node.name()).collect();
        let absent =
            || Error::Absent { name: format!("node {node} with a kubelet"), present: names.join(", ") };
        hosts.clone().find(|host| host.node.name() == node).ok_or_else(absent)
    }

    /// The inside of a node whose first process runs.
    fn place_of(&self, host: &Host) -> Result<Place, Error> {
        let name = format!("init@{}", host.node.name());
        let pid = self.components.iter().find(|it| it.name() == name).and_then(Component::pid);
        let opened = pid
            .and_then(|pid| i32::try_from(pid).ok())
            .and_then(Pid::from_raw)
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
            .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).map_err(io::Error::from));
        opened.map(|init| Place::Node(Arc::new(init))).map_err(|source| Error::Spawn { name, source })
    }
}

impl Hosts {
    fn of<'a>(&'a self, nodes: &'a [KubeletNode]) -> impl Iterator<Item = &'a Host> {
        self.machines.iter().filter(|host| nodes.iter().any(|node| node.name() == host.node.name()))
    }
}

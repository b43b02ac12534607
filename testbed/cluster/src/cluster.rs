//! A cluster from start to stop, and the faults that tests put it through.

mod hosts;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::authority::{Authority, Credentials};
use crate::component::{Component, Plan};
use crate::control_plane::{Addresses, Blueprint, audit_log, etcd_socket};
use crate::description::ClusterDescription;
use crate::home::{Home, write_private};
use crate::network::Network;
use crate::recipe::Tool;
use crate::{Error, Image, Kubectl, KubeletNode, KwokNode, programs, readiness};

use hosts::{Hosts, Stock};

const APISERVER: &str = "kube-apiserver";
const ETCD: &str = "etcd";
const SCHEDULER: &str = "kube-scheduler";

/// The scheduler's configuration in the cluster's folder, where there is one.
const SCHEDULER_CONFIGURATION: &str = "scheduler.json";

/// What a cluster is to be like, before it is started.
#[derive(Debug, Default)]
pub struct Builder {
    nodes: Vec<KwokNode>,
    folder: Option<PathBuf>,
    audited: Option<String>,
    kubelet_nodes: Vec<KubeletNode>,
    images: Vec<Image>,
    scheduler: Option<Value>,
}

impl Builder {
    /// Adds a node with a kubelet, on which pods really run. Needs root.
    #[must_use]
    pub fn kubelet_node(mut self, node: KubeletNode) -> Self {
        self.kubelet_nodes.push(node);
        self
    }

    /// Adds an image that all nodes with a kubelet have; pods that use it say `imagePullPolicy: Never` or
    /// `IfNotPresent`.
    #[must_use]
    pub fn image(mut self, image: Image) -> Self {
        self.images.push(image);
        self
    }

    /// The scheduler starts with this `KubeSchedulerConfiguration`; see [`Cluster::configure_scheduler`].
    #[must_use]
    pub fn scheduler(mut self, configuration: Value) -> Self {
        self.scheduler = Some(configuration);
        self
    }

    /// Adds a node that kwok plays.
    #[must_use]
    pub fn node(mut self, node: KwokNode) -> Self {
        self.nodes.push(node);
        self
    }

    /// Adds nodes that kwok plays.
    #[must_use]
    pub fn nodes(mut self, nodes: impl IntoIterator<Item = KwokNode>) -> Self {
        self.nodes.extend(nodes);
        self
    }

    /// Lives in this folder rather than in a new temporary one; what a dead cluster left there is removed.
    #[must_use]
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// The API server writes down every request of this user, as it comes in: a line of JSON each, an Event of
    /// `audit.k8s.io/v1`, in [`Cluster::audit_log`]. Others are not written down and cost nothing.
    #[must_use]
    pub fn audited(mut self, user: impl Into<String>) -> Self {
        self.audited = Some(user.into());
        self
    }

    /// Starts the cluster and waits until pods can be created and its nodes take them.
    ///
    /// Builds the programs first if they are not in the cache: that takes minutes and is said on standard error.
    /// When it fails, everything that was started has ended, and the error names the folder with the logs.
    pub fn start(self) -> Result<Cluster, Error> {
        let stock = self.stock()?;
        let kube = programs::folder_of(Tool::Kube)?;
        let kwok = programs::folder_of(Tool::Kwok)?.join("kwok");
        let home = match &self.folder {
            Some(folder) => Home::at(folder)?,
            None => Home::temporary()?,
        };
        let network = stock.is_some().then(|| Network::make(home.folder())).transpose()?;
        let addresses = match &network {
            Some(network) => Addresses::within(network),
            None => Addresses::on_loopback()?,
        };
        let authority = Authority::new()?;
        let (server, names) = (addresses.server(), addresses.server_names());
        let credentials = Credentials::make(home.folder(), &authority, &server, &names)?;
        let cache = home.folder().join("kubectl-cache");
        let kubectl = Kubectl::new(kube.join("kubectl"), credentials.kubeconfig.clone(), cache);
        let folder = home.folder().to_owned();
        let mut cluster = Cluster {
            components: Vec::new(),
            home: Some(home),
            programs: (kube.join("kube"), kwok),
            folder,
            credentials,
            addresses,
            kubectl,
            audited: self.audited,
            hosts: stock.zip(network).map(|(stock, network)| Hosts::new(stock, network, authority)),
        };
        match cluster.bring_up(&self.nodes, &self.kubelet_nodes, self.scheduler.as_ref()) {
            Ok(()) => Ok(cluster),
            Err(source) => Err(cluster.fail(source)),
        }
    }

    /// What nodes with a kubelet are made with; `None` when there are none.
    fn stock(&self) -> Result<Option<Stock>, Error> {
        let wanted = !self.kubelet_nodes.is_empty();
        wanted.then(|| Stock::gather(self.images.clone())).transpose()
    }
}

/// A running cluster. It ends when this is dropped, and when this process ends in whatever way.
#[derive(Debug)]
pub struct Cluster {
    /// In the order in which they were started.
    pub(crate) components: Vec<Component>,
    /// `None` once the cluster has been stopped.
    home: Option<Home>,
    /// The Kubernetes components' program, and kwok.
    pub(crate) programs: (PathBuf, PathBuf),
    pub(crate) folder: PathBuf,
    credentials: Credentials,
    pub(crate) addresses: Addresses,
    pub(crate) kubectl: Kubectl,
    /// Whose requests the API server writes down.
    audited: Option<String>,
    /// The machines of nodes with a kubelet.
    pub(crate) hosts: Option<Hosts>,
}

impl Cluster {
    /// Describes a new cluster.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The administrator's kubeconfig. It holds everything that is needed and may be copied.
    pub fn kubeconfig(&self) -> &Path {
        &self.credentials.kubeconfig
    }

    /// The cluster's folder: logs, keys and data.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes a kubeconfig for a service account, with the account's namespace as its own; its token is good for an
    /// hour. The user that the API server sees is `system:serviceaccount:NAMESPACE:ACCOUNT`.
    pub fn kubeconfig_of(&self, namespace: &str, account: &str) -> Result<PathBuf, Error> {
        let token = self.kubectl(["create", "token", account, "--namespace", namespace])?;
        let path = self.folder.join(format!("{namespace}.{account}.kubeconfig"));
        let admin = fs::read_to_string(self.kubeconfig()).map_err(Error::file("read", self.kubeconfig()))?;
        write_private(&path, &admin)?;
        let file = format!("--kubeconfig={}", path.display());
        let (token, namespace) = (format!("--token={}", token.trim()), format!("--namespace={namespace}"));
        self.kubectl(["config", &file, "set-credentials", "service-account", &token])?;
        self.kubectl(["config", &file, "set-context", "--current", "--user=service-account", &namespace])?;
        Ok(path)
    }

    /// The requests of the user that was given to [`Builder::audited`]; the file appears with the first of them.
    pub fn audit_log(&self) -> PathBuf {
        audit_log(&self.folder)
    }

    /// A kubectl for this cluster, to keep and to use from other threads.
    pub fn kubectl_handle(&self) -> Kubectl {
        self.kubectl.clone()
    }

    /// Runs the real kubectl as administrator; gives its standard output, or an error with what it said.
    pub fn kubectl<I>(&self, arguments: I) -> Result<String, Error>
    where
        I: IntoIterator,
        I::Item: AsRef<OsStr>,
    {
        self.kubectl.run(arguments, "")
    }

    /// `kubectl apply` of manifests in YAML or JSON.
    pub fn apply(&self, manifests: &str) -> Result<String, Error> {
        self.kubectl.run(["apply", "--filename", "-"], manifests)
    }

    /// Adds a node that kwok plays and waits until it takes pods.
    pub fn add_node(&mut self, node: &KwokNode) -> Result<(), Error> {
        self.add_nodes(std::slice::from_ref(node))
    }

    /// Adds nodes that kwok plays and waits until they take pods.
    pub fn add_nodes(&mut self, nodes: &[KwokNode]) -> Result<(), Error> {
        if nodes.is_empty() {
            return Ok(());
        }
        let objects: Vec<_> = nodes.iter().map(KwokNode::object).collect();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        self.kubectl.run(["create", "--filename", "-"], &list.to_string())?;
        let names: Vec<&str> = nodes.iter().map(KwokNode::name).collect();
        readiness::nodes(&mut self.components, &self.kubectl, &names)
    }

    /// What runs: names, process ids, addresses, logs.
    pub fn description(&self) -> ClusterDescription {
        ClusterDescription::of(&self.programs.0, &self.credentials, &self.components)
    }

    /// Kills the API server, as a crash would. Its port stays taken: connections are refused.
    pub fn stop_apiserver(&mut self) -> Result<(), Error> {
        self.kill(APISERVER)
    }

    /// Starts the API server again, on the same port and data, and waits until it is ready.
    pub fn start_apiserver(&mut self) -> Result<(), Error> {
        self.start_again(APISERVER)
    }

    /// Kills a component, as a crash would, by the name it has in [`Cluster::description`]: `kube-scheduler`,
    /// `kubelet@n1` for the kubelet of node `n1`, and so on. Containers survive their kubelet and containerd.
    pub fn kill(&mut self, name: &str) -> Result<(), Error> {
        let killed = self.component(name)?.kill();
        killed.map_err(|source| Error::Spawn { name: name.to_owned(), source })
    }

    /// Starts a component that was killed, on the same address and data, and waits until it says that it is well.
    ///
    /// A node whose first process (`init@NODE`) was killed has lost all others with it, and stays off;
    /// [`Cluster::reboot`] starts one anew.
    pub fn start_again(&mut self, name: &str) -> Result<(), Error> {
        if let Some(node) = name.strip_prefix("init@") {
            return Err(Error::Off { node: node.to_owned() });
        }
        let component = self.component(name)?;
        if component.pid().is_none() {
            component.start_again()?;
        }
        self.tell_of(name)
    }

    /// Restarts the scheduler with this `KubeSchedulerConfiguration`, in which `clientConnection` and
    /// `leaderElection` are set here, and waits until it is ready.
    pub fn configure_scheduler(&mut self, configuration: &Value) -> Result<(), Error> {
        self.kill(SCHEDULER)?;
        self.write_scheduler_configuration(configuration)?;
        let plan = self.blueprint(None)?.scheduler();
        self.component(SCHEDULER)?.start_as(plan)?;
        self.tell_of(SCHEDULER)
    }

    /// Whoever looks from outside finds a component that was started again, and this returns when it is well.
    fn tell_of(&mut self, name: &str) -> Result<(), Error> {
        self.description().write(&self.folder, true)?;
        self.wait_for(&[name])
    }

    /// Ends everything and removes the folder.
    ///
    /// An error when a component had ended by itself; its logs are kept then.
    pub fn stop(mut self) -> Result<(), Error> {
        if let Err(died) = self.components.iter_mut().try_for_each(Component::check) {
            return Err(self.fail(died));
        }
        self.kill_all();
        self.home.take().map_or(Ok(()), Home::remove)
    }

    /// Starts the components, each as soon as what it needs is ready, then the nodes.
    fn bring_up(
        &mut self,
        nodes: &[KwokNode],
        kubelet_nodes: &[KubeletNode],
        scheduler: Option<&Value>,
    ) -> Result<(), Error> {
        if let Some(configuration) = scheduler {
            self.write_scheduler_configuration(configuration)?;
        }
        let audit_policy = self.audited.as_deref().map(|user| self.write_audit_policy(user)).transpose()?;
        let blueprint = self.blueprint(audit_policy)?;
        let (etcd, apiserver) = (blueprint.etcd(), blueprint.apiserver());
        let mut rest = vec![blueprint.controller_manager(), blueprint.scheduler(), blueprint.kwok()];
        if let Some(first) = kubelet_nodes.first() {
            rest.push(blueprint.proxy(first.name())?);
        }
        // Containers have the longest way to go.
        self.start_hosts(kubelet_nodes)?;
        self.start_component(etcd)?;
        self.wait_for(&[ETCD])?;
        self.start_component(apiserver)?;
        let images = self.import_images(kubelet_nodes)?;
        self.wait_for(&[APISERVER])?;
        rest.into_iter().try_for_each(|plan| self.start_component(plan))?;
        self.start_kubelets(kubelet_nodes)?;
        self.wait_for(&["kube-controller-manager", SCHEDULER])?;
        readiness::service_account(&mut self.components, &self.kubectl)?;
        self.add_nodes(nodes)?;
        self.wait_for_kubelets(kubelet_nodes, images)?;
        self.description().write(&self.folder, true)
    }

    fn blueprint(&self, audit_policy: Option<PathBuf>) -> Result<Blueprint<'_>, Error> {
        let scheduler = self.folder.join(SCHEDULER_CONFIGURATION);
        let exists = scheduler.try_exists().map_err(Error::file("look for", &scheduler))?;
        Ok(Blueprint {
            kube: self.programs.0.clone(),
            kwok: self.programs.1.clone(),
            folder: &self.folder,
            credentials: &self.credentials,
            addresses: &self.addresses,
            audit_policy,
            scheduler_configuration: exists.then_some(scheduler),
        })
    }

    /// With a configuration, the scheduler takes nothing but its addresses from its flags.
    fn write_scheduler_configuration(&self, configuration: &Value) -> Result<(), Error> {
        let mut configuration = configuration.clone();
        configuration["clientConnection"] = json!({"kubeconfig": self.credentials.scheduler});
        configuration["leaderElection"] = json!({"leaderElect": false});
        write_private(&self.folder.join(SCHEDULER_CONFIGURATION), &configuration.to_string())
    }

    /// Requests of this user only, each once.
    fn write_audit_policy(&self, user: &str) -> Result<PathBuf, Error> {
        let policy = json!({
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["ResponseStarted", "ResponseComplete", "Panic"],
            "rules": [{"level": "Metadata", "users": [user]}, {"level": "None"}],
        });
        let path = self.folder.join("audit-policy.json");
        write_private(&path, &policy.to_string())?;
        Ok(path)
    }

    pub(crate) fn start_component(&mut self, plan: Plan) -> Result<(), Error> {
        let home = self.home.as_ref().map(|home| home.log(&plan.name));
        let log = home.unwrap_or_else(|| self.folder.join("log"));
        self.components.push(Component::start(plan, &self.folder, log)?);
        // Whoever has to clear up after us knows what was started so far.
        self.description().write(&self.folder, false)
    }

    fn wait_for(&mut self, names: &[&str]) -> Result<(), Error> {
        if names.contains(&ETCD) {
            readiness::etcd(&mut self.components, &etcd_socket(&self.folder))?;
        }
        readiness::addresses(&mut self.components, names, &self.programs.0, &self.credentials)
    }

    fn component(&mut self, name: &str) -> Result<&mut Component, Error> {
        let names: Vec<&str> = self.components.iter().map(Component::name).collect();
        let absent = || Error::Absent { name: name.to_owned(), present: names.join(", ") };
        let index = names.iter().position(|it| *it == name).ok_or_else(absent)?;
        Ok(&mut self.components[index])
    }

    /// Kills everything, the last started first. There is nothing to end gently: the data is thrown away.
    fn kill_all(&mut self) {
        while let Some(component) = self.components.pop() {
            drop(component);
        }
    }

    /// Ends everything but keeps the logs, and says where.
    fn fail(&mut self, source: Error) -> Error {
        self.kill_all();
        match self.home.take().map(Home::remove_but_logs) {
            Some(Ok(logs)) => Error::Failed { source: Box::new(source), logs },
            // That the logs could not be kept matters less than why the cluster failed.
            Some(Err(_)) | None => source,
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.kill_all();
        let Some(home) = self.home.take() else { return };
        if std::thread::panicking() {
            // A test failed with this cluster: what the components said may tell why.
            match home.remove_but_logs() {
                Ok(logs) => eprintln!("testbed: the cluster's logs are kept in {}", logs.display()),
                Err(error) => eprintln!("testbed: {error}"),
            }
        } else if let Err(error) = home.remove() {
            eprintln!("testbed: {error}");
        }
    }
}

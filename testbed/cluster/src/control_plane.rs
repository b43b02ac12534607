//! With which arguments each component is started.
//!
//! Everything listens on a socket in the cluster's private folder, on 127.0.0.1, or, in a cluster with kubelets, in the
//! cluster's own network.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::address::HeldPort;
use crate::authority::Credentials;
use crate::component::Plan;
use crate::home::write_private;
use crate::host::PATH;
use crate::network::{API_SERVICE, Network, SERVICES};
use crate::place::Place;

/// Annotation and value by which kwok knows the nodes that it plays; it leaves all others alone.
pub(crate) const KWOK_NODE: (&str, &str) = ("kwok.x-k8s.io/node", "fake");

/// What etcd advertises must be a host and a port; nobody ever asks its only member for it.
const UNUSED_URL: &str = "http://127.0.0.1:2380";

/// What the arguments are made from.
pub(crate) struct Blueprint<'a> {
    /// The program with etcd and the Kubernetes components.
    pub(crate) kube: PathBuf,
    /// kwok.
    pub(crate) kwok: PathBuf,
    /// The cluster's folder.
    pub(crate) folder: &'a Path,
    pub(crate) credentials: &'a Credentials,
    pub(crate) addresses: &'a Addresses,
    /// Which requests the API server writes down; none without.
    pub(crate) audit_policy: Option<PathBuf>,
    /// The scheduler's configuration; its own defaults without.
    pub(crate) scheduler_configuration: Option<PathBuf>,
}

/// Where the components of a control plane serve.
#[derive(Debug)]
pub(crate) struct Addresses {
    host: Ipv4Addr,
    apiserver: Port,
    scheduler: Port,
    controller_manager: Port,
    place: Place,
}

/// A port, and who makes sure that nobody else takes it.
#[derive(Debug)]
enum Port {
    /// This process does: the address is the whole machine's.
    Held(HeldPort),
    /// Nobody else is in the network.
    Own(u16),
}

impl Port {
    fn number(&self) -> u16 {
        match self {
            Self::Held(port) => port.number(),
            Self::Own(number) => *number,
        }
    }
}

impl Addresses {
    /// Takes three free ports on 127.0.0.1.
    pub(crate) fn on_loopback() -> Result<Self, crate::Error> {
        let port = || HeldPort::take().map(Port::Held);
        Ok(Self {
            host: Ipv4Addr::LOCALHOST,
            apiserver: port()?,
            scheduler: port()?,
            controller_manager: port()?,
            place: Place::Here,
        })
    }

    /// The usual ports of the control plane's address.
    pub(crate) fn within(network: &Network) -> Self {
        Self {
            host: network.control_plane(),
            // That of the service `kubernetes`: its address is this address's neighbour.
            apiserver: Port::Own(443),
            scheduler: Port::Own(10259),
            controller_manager: Port::Own(10257),
            place: network.place(),
        }
    }

    /// The API server's URL.
    pub(crate) fn server(&self) -> String {
        self.url(&self.apiserver, "")
    }

    /// The names that the API server's certificate is for, beside the usual ones.
    pub(crate) fn server_names(&self) -> Vec<String> {
        vec![self.host.to_string(), API_SERVICE.to_string()]
    }

    fn url(&self, port: &Port, path: &str) -> String {
        format!("https://{}:{}{path}", self.host, port.number())
    }

    fn is_own_network(&self) -> bool {
        matches!(self.apiserver, Port::Own(_))
    }
}

/// The socket on which etcd serves the API server.
pub(crate) fn etcd_socket(folder: &Path) -> PathBuf {
    folder.join("etcd.sock")
}

/// Where the API server writes down requests.
pub(crate) fn audit_log(folder: &Path) -> PathBuf {
    folder.join("audit.log")
}

impl Blueprint<'_> {
    /// etcd: one member, on sockets, without syncing: the data lives no longer than the test.
    pub(crate) fn etcd(&self) -> Plan {
        let url = |socket: PathBuf| format!("unix://{}", socket.display());
        let mut plan = self.plan("etcd", Some(etcd_socket(self.folder).display().to_string()));
        plan.flag("--name", "testbed");
        plan.flag("--data-dir", self.folder.join("etcd"));
        plan.flag("--listen-client-urls", url(etcd_socket(self.folder)));
        plan.flag("--listen-peer-urls", url(self.folder.join("etcd-peer.sock")));
        plan.flag("--advertise-client-urls", UNUSED_URL);
        plan.flag("--initial-advertise-peer-urls", UNUSED_URL);
        plan.flag("--initial-cluster", format!("testbed={UNUSED_URL}"));
        plan.flag("--log-level", "warn");
        plan.arguments.push("--unsafe-no-fsync".into());
        plan
    }

    /// The API server, with RBAC as real clusters have it.
    pub(crate) fn apiserver(&self) -> Plan {
        let credentials = self.credentials;
        let addresses = self.addresses;
        let mut plan = self.plan("kube-apiserver", Some(addresses.url(&addresses.apiserver, "/readyz")));
        plan.flag("--etcd-servers", format!("unix://{}", etcd_socket(self.folder).display()));
        self.serve(&mut plan, &addresses.apiserver);
        // Without a default route there would be no address to advertise.
        plan.flag("--advertise-address", addresses.host.to_string());
        if addresses.is_own_network() {
            // On the service's address too.
            plan.flag("--bind-address", "0.0.0.0");
            // Webhooks and API services are reached at their pods' own addresses, whatever kube-proxy has got round to.
            plan.flag("--enable-aggregator-routing", "true");
            plan.flag("--kubelet-client-certificate", &credentials.admin.0);
            plan.flag("--kubelet-client-key", &credentials.admin.1);
        } else {
            // 127.0.0.1 may not be the endpoint of a service, so none is kept for `kubernetes`.
            plan.flag("--endpoint-reconciler-type", "none");
        }
        plan.flag("--authorization-mode", "Node,RBAC");
        plan.flag("--client-ca-file", &credentials.authority);
        // Nobody holds a certificate of that authority; without one, all components complain once a second.
        plan.flag("--requestheader-client-ca-file", &credentials.front_proxy);
        plan.flag("--requestheader-allowed-names", "front-proxy-client");
        plan.flag("--requestheader-username-headers", "X-Remote-User");
        plan.flag("--requestheader-group-headers", "X-Remote-Group");
        plan.flag("--requestheader-extra-headers-prefix", "X-Remote-Extra-");
        plan.flag("--service-account-issuer", "https://kubernetes.default.svc.cluster.local");
        plan.flag("--service-account-key-file", &credentials.service_accounts.0);
        plan.flag("--service-account-signing-key-file", &credentials.service_accounts.1);
        plan.flag("--service-cluster-ip-range", SERVICES);
        plan.flag("--kubelet-preferred-address-types", "InternalIP");
        plan.flag("--allow-privileged", "true");
        if let Some(policy) = &self.audit_policy {
            plan.flag("--audit-policy-file", policy);
            plan.flag("--audit-log-path", audit_log(self.folder));
        }
        plan
    }

    /// The stock scheduler.
    pub(crate) fn scheduler(&self) -> Plan {
        let port = &self.addresses.scheduler;
        let mut plan = self.plan("kube-scheduler", Some(self.addresses.url(port, "/healthz")));
        plan.act_as(&self.credentials.scheduler);
        self.serve(&mut plan, port);
        if let Some(configuration) = &self.scheduler_configuration {
            plan.flag("--config", configuration);
        }
        plan
    }

    /// The stock controller-manager; each controller has its own service account, as RBAC's own roles expect.
    pub(crate) fn controller_manager(&self) -> Plan {
        let port = &self.addresses.controller_manager;
        let mut plan = self.plan("kube-controller-manager", Some(self.addresses.url(port, "/healthz")));
        plan.act_as(&self.credentials.controller_manager);
        self.serve(&mut plan, port);
        plan.flag("--use-service-account-credentials", "true");
        plan.flag("--service-account-private-key-file", &self.credentials.service_accounts.1);
        plan.flag("--root-ca-file", &self.credentials.authority);
        // At its own 20 a second, fetching a token for each controller takes 5 seconds of every start.
        plan.flag("--kube-api-qps", "200");
        plan.flag("--kube-api-burst", "400");
        // No node dies here. On a machine that is too busy, kwok's renewals of leases come late; nodes would be
        // declared dead, and kwok, bringing them back, would write what it last knew of their capacity over what
        // has been written since.
        plan.flag("--node-monitor-grace-period", "24h");
        plan
    }

    /// kube-proxy, in the control plane's network: what nodes send to a service address passes through it too, and comes
    /// back through it, as it puts its own address for the sender's.
    ///
    /// It says that it is on this node: it waits for a node's addresses before it does anything.
    pub(crate) fn proxy(&self, node: &str) -> Result<Plan, crate::Error> {
        let configuration = json!({
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "iptables",
            "hostnameOverride": node,
            "clientConnection": {"kubeconfig": self.credentials.proxy},
            "healthzBindAddress": format!("{}:10256", self.addresses.host),
            "metricsBindAddress": "127.0.0.1:10249",
            "iptables": {"masqueradeAll": true},
            // These are the whole machine's, and stay as they are.
            "conntrack": {
                "maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s",
            },
        });
        let file = self.folder.join("kube-proxy.json");
        write_private(&file, &configuration.to_string())?;
        let mut plan = self.plan("kube-proxy", None);
        // It looks for iptables there.
        plan.environment.push(("PATH".into(), PATH.into()));
        plan.flag("--config", file);
        Ok(plan)
    }

    /// kwok, for the nodes that carry its annotation and for no others.
    pub(crate) fn kwok(&self) -> Plan {
        let (annotation, value) = KWOK_NODE;
        let mut plan = self.plan("kwok", None);
        plan.program.clone_from(&self.kwok);
        plan.arguments.clear();
        plan.flag("--kubeconfig", &self.credentials.kwok);
        plan.flag("--manage-nodes-with-annotation-selector", format!("{annotation}={value}"));
        plan
    }

    /// A component of the one program, without arguments of its own yet.
    fn plan(&self, name: &str, address: Option<String>) -> Plan {
        Plan {
            name: name.to_owned(),
            program: self.kube.clone(),
            arguments: vec![name.into()],
            environment: Vec::new(),
            address,
            place: self.addresses.place.clone(),
        }
    }

    /// The component serves on this port; one that this process holds is shared with it.
    fn serve(&self, plan: &mut Plan, port: &Port) {
        plan.flag("--bind-address", self.addresses.host.to_string());
        plan.flag("--secure-port", port.number().to_string());
        plan.flag("--permit-port-sharing", "true");
        plan.flag("--tls-cert-file", &self.credentials.server.0);
        plan.flag("--tls-private-key-file", &self.credentials.server.1);
        plan.flag("--profiling", "false");
    }
}

impl Plan {
    /// Talks to the API server with this kubeconfig, also to find out who calls it.
    fn act_as(&mut self, kubeconfig: &Path) {
        self.flag("--kubeconfig", kubeconfig);
        self.flag("--authentication-kubeconfig", kubeconfig);
        self.flag("--authorization-kubeconfig", kubeconfig);
        // There is only one of each.
        self.flag("--leader-elect", "false");
    }
}

//! With which arguments each component is started.
//!
//! Everything listens on 127.0.0.1 or on a socket in the cluster's private folder.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::address::HeldPort;
use crate::authority::Credentials;
use crate::component::Plan;

/// Annotation and value by which kwok knows the nodes that it plays; it leaves all others alone.
pub(crate) const KWOK_NODE: (&str, &str) = ("kwok.x-k8s.io/node", "fake");

/// Service addresses; nothing routes them.
const SERVICE_RANGE: &str = "10.96.0.0/16";

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
    pub(crate) ports: &'a Ports,
    /// Which requests the API server writes down; none without.
    pub(crate) audit_policy: Option<PathBuf>,
}

/// The ports of a cluster.
#[derive(Debug)]
pub(crate) struct Ports {
    apiserver: HeldPort,
    scheduler: HeldPort,
    controller_manager: HeldPort,
}

impl Ports {
    /// Takes three free ports.
    pub(crate) fn take() -> Result<Self, crate::Error> {
        Ok(Self {
            apiserver: HeldPort::take()?,
            scheduler: HeldPort::take()?,
            controller_manager: HeldPort::take()?,
        })
    }

    /// The API server's URL.
    pub(crate) fn server(&self) -> String {
        format!("https://127.0.0.1:{}", self.apiserver.number())
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
        let mut plan = self.plan("kube-apiserver", Some(format!("{}/readyz", self.ports.server())));
        plan.flag("--etcd-servers", format!("unix://{}", etcd_socket(self.folder).display()));
        plan.serve(&self.ports.apiserver, credentials);
        // Without a default route there would be no address to advertise; and 127.0.0.1 may not be the endpoint
        // of a service, so none is kept for `kubernetes`.
        plan.flag("--advertise-address", "127.0.0.1");
        plan.flag("--endpoint-reconciler-type", "none");
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
        plan.flag("--service-cluster-ip-range", SERVICE_RANGE);
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
        let mut plan = self.plan("kube-scheduler", Some(healthz(&self.ports.scheduler)));
        plan.act_as(&self.credentials.scheduler);
        plan.serve(&self.ports.scheduler, self.credentials);
        plan
    }

    /// The stock controller-manager; each controller has its own service account, as RBAC's own roles expect.
    pub(crate) fn controller_manager(&self) -> Plan {
        let mut plan = self.plan("kube-controller-manager", Some(healthz(&self.ports.controller_manager)));
        plan.act_as(&self.credentials.controller_manager);
        plan.serve(&self.ports.controller_manager, self.credentials);
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

    /// kwok, for the nodes that carry its annotation and for no others.
    pub(crate) fn kwok(&self) -> Plan {
        let (annotation, value) = KWOK_NODE;
        let mut plan =
            Plan { name: "kwok", program: self.kwok.clone(), arguments: Vec::new(), address: None };
        plan.flag("--kubeconfig", &self.credentials.kwok);
        plan.flag("--manage-nodes-with-annotation-selector", format!("{annotation}={value}"));
        plan
    }

    /// A component of the one program, without arguments of its own yet.
    fn plan(&self, name: &'static str, address: Option<String>) -> Plan {
        Plan { name, program: self.kube.clone(), arguments: vec![name.into()], address }
    }
}

impl Plan {
    fn flag(&mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) {
        let mut argument = OsString::from(name);
        argument.push("=");
        argument.push(value);
        self.arguments.push(argument);
    }

    /// Serves on a port that this process holds.
    fn serve(&mut self, port: &HeldPort, credentials: &Credentials) {
        self.flag("--bind-address", "127.0.0.1");
        self.flag("--secure-port", port.number().to_string());
        self.flag("--permit-port-sharing", "true");
        self.flag("--tls-cert-file", &credentials.server.0);
        self.flag("--tls-private-key-file", &credentials.server.1);
        self.flag("--profiling", "false");
    }

    /// Talks to the API server with this kubeconfig, also to find out who calls it.
    fn act_as(&mut self, kubeconfig: &Path) {
        self.flag("--kubeconfig", kubeconfig);
        self.flag("--authentication-kubeconfig", kubeconfig);
        self.flag("--authorization-kubeconfig", kubeconfig);
        // There is only one of each.
        self.flag("--leader-elect", "false");
    }
}

fn healthz(port: &HeldPort) -> String {
    format!("https://127.0.0.1:{}/healthz", port.number())
}

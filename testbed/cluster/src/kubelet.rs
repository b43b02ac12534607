//! How a node's kubelet is set up.

use std::net::Ipv4Addr;
use std::path::Path;

use serde_json::json;

use crate::containerd::SOCKET;

/// The kubelet's port.
pub(crate) const PORT: u16 = 10250;

/// Where the kubelet looks for manifests of static pods.
pub(crate) const STATIC_PODS: &str = "/var/lib/kubelet/static-pods";

/// What the kubelet wants of the machine. It would set these for the whole machine; a node shows it files
/// with these values in their place, and it changes nothing.
pub(crate) const TUNABLES: &[(&str, &str)] = &[
    ("/proc/sys/kernel/keys/root_maxbytes", "25000000"),
    ("/proc/sys/kernel/keys/root_maxkeys", "1000000"),
    ("/proc/sys/kernel/panic", "10"),
    ("/proc/sys/kernel/panic_on_oops", "1"),
    ("/proc/sys/vm/overcommit_memory", "1"),
    ("/proc/sys/vm/panic_on_oom", "0"),
];

/// What the configuration is made from; the paths are the node's.
#[derive(Debug)]
pub(crate) struct KubeletSettings<'a> {
    pub(crate) address: Ipv4Addr,
    /// The control group that the pods' groups are made in.
    pub(crate) control_group: &'a str,
    pub(crate) authority: &'a Path,
    pub(crate) certificate: &'a Path,
    pub(crate) key: &'a Path,
    pub(crate) resolver: &'a Path,
}

/// The kubelet's configuration.
pub(crate) fn configuration(settings: &KubeletSettings<'_>) -> String {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": settings.address,
        "port": PORT,
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": settings.authority},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": settings.certificate,
        "tlsPrivateKeyFile": settings.key,
        "containerRuntimeEndpoint": format!("unix://{SOCKET}"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": settings.control_group,
        "staticPodPath": STATIC_PODS,
        // The machine may still be on version 1, which this kubelet otherwise refuses.
        "failCgroupV1": false,
        "failSwapOn": false,
        // The described machine is larger than the real one: nothing is held to it, nothing is evicted.
        "enforceNodeAllocatable": [],
        "evictionHard": {
            "memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%",
            "imagefs.available": "0%", "imagefs.inodesFree": "0%",
        },
        "imageGCHighThresholdPercent": 100,
        "localStorageCapacityIsolation": true,
        "protectKernelDefaults": true,
        "makeIPTablesUtilChains": false,
        // Nothing answers there: pods need no names. Without an address every pod gets a warning.
        "clusterDNS": ["10.96.0.10"],
        "clusterDomain": "cluster.local",
        "resolvConf": settings.resolver,
        "serializeImagePulls": false,
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        // What it says of the node is seen after 2 seconds rather than 10.
        "nodeStatusUpdateFrequency": "2s",
        "syncFrequency": "10s",
    })
    .to_string()
}

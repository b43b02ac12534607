//! How a node's containerd is set up.

use serde_json::json;

/// The image of a pod's own first process.
pub(crate) const PAUSE: &str = "gpupool.testbed/pause:1";

/// Where containerd listens on a node.
pub(crate) const SOCKET: &str = "/run/containerd/containerd.sock";

/// Where the network plug-ins are: Debian's package, then their own default.
const PLUGINS: &str = r#"["/usr/lib/cni", "/opt/cni/bin"]"#;

/// containerd's configuration; `network` is the folder with the pod network's.
pub(crate) fn configuration(network: &str) -> String {
    format!(
        r#"version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
# What is not needed here and only looks for things that are not there.
disabled_plugins = [
  "io.containerd.internal.v1.tracing",
  "io.containerd.nri.v1.nri",
  "io.containerd.snapshotter.v1.blockfile",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.erofs",
  "io.containerd.snapshotter.v1.zfs",
]

[grpc]
  address = "{SOCKET}"

[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{PAUSE}"

[plugins."io.containerd.cri.v1.runtime"]
  # Without CAP_SYS_RESOURCE a container cannot be less likely to be killed than containerd itself.
  restrict_oom_score_adj = true

[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = {PLUGINS}
  conf_dir = "{network}"
"#
    )
}

/// The pods' network: a bridge on the node, with the node as the way out.
pub(crate) fn pod_network(subnet: &str) -> String {
    json!({
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [{
            "type": "bridge",
            "bridge": "pods",
            "isGateway": true,
            "hairpinMode": true,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": subnet}]],
                "routes": [{"dst": "0.0.0.0/0"}],
                "dataDir": "/run/cni",
            },
        }],
    })
    .to_string()
}

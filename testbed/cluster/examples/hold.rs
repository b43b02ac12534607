//! Starts a cluster, prints its folder, and holds the cluster until it is killed or its standard input ends.
//!
//! `cargo run -p gpupool-testbed --example hold`; with `-- --kubelet` its node has a kubelet, which needs root.

use std::io::{Read, Write};

use gpupool_testbed::{Cluster, Error, KubeletNode, KwokNode};

fn main() -> Result<(), Error> {
    let builder = Cluster::builder();
    let builder = if std::env::args().any(|argument| argument == "--kubelet") {
        builder.kubelet_node(KubeletNode::new("n1"))
    } else {
        builder.node(KwokNode::new("n1"))
    };
    let cluster = builder.start()?;
    let mut ignored = Vec::new();
    // Whoever cannot be told the folder has gone, and so does the cluster.
    if writeln!(std::io::stdout(), "{}", cluster.folder().display()).is_ok() {
        let _ = std::io::stdin().read_to_end(&mut ignored);
    }
    cluster.stop()
}

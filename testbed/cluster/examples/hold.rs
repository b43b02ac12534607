//! Starts a cluster, prints its folder, and holds the cluster until it is killed or its standard input ends.
//!
//! `cargo run -p gpupool-testbed --example hold`

use std::io::{Read, Write};

use gpupool_testbed::{Cluster, Error, Node};

fn main() -> Result<(), Error> {
    let cluster = Cluster::builder().node(Node::new("n1")).start()?;
    let mut ignored = Vec::new();
    // Whoever cannot be told the folder has gone, and so does the cluster.
    if writeln!(std::io::stdout(), "{}", cluster.folder().display()).is_ok() {
        let _ = std::io::stdin().read_to_end(&mut ignored);
    }
    cluster.stop()
}

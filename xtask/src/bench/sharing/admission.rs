//! What admission adds to the creation of a pod: pods that ask for percentages beside pods that do not, created in
//! turn through the same proxy and not kept (`dryRun`).

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use gpupool_testbed::spawn_tied;
use serde_json::{Value, json};

use super::stage::{NODES, Pod, Stage};

const PATIENCE: Duration = Duration::from_mins(1);
/// The first questions open connections and fill caches.
const WARMING: usize = 5;

pub(super) fn measure(stage: &Stage, count: usize) -> anyhow::Result<()> {
    let api = Api::open(stage)?;
    let sharing = Pod::new("created", NODES[0], "sleep infinity").object();
    let mut plain = sharing.clone();
    plain["spec"]["containers"][0]["resources"] = json!({});
    let [mut bare, mut ours] = [(); 2].map(|()| Vec::new());
    for turn in 0..WARMING + count {
        for (samples, pod) in [(&mut bare, &plain), (&mut ours, &sharing)] {
            let took = api.create(pod)?;
            if turn >= WARMING {
                samples.push(took);
            }
        }
    }
    super::print_percentiles("creation of a pod, plain and sharing", Some(bare), ours);
    Ok(())
}

/// `kubectl proxy`, which speaks to the API server over a connection that it keeps.
#[derive(Debug)]
struct Api {
    proxy: Child,
    address: String,
}

impl Api {
    fn open(stage: &Stage) -> anyhow::Result<Self> {
        let mut command = stage.kubectl.command(["proxy", "--port=0"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut proxy = spawn_tied(command)?;
        let output = proxy.stdout.take().context("standard output was piped")?;
        let mut api = Self { proxy, address: String::new() };
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        line.trim()
            .rsplit(' ')
            .next()
            .context("kubectl proxy says where it serves")?
            .clone_into(&mut api.address);
        Ok(api)
    }

    /// How long the creation of a pod takes that is not kept, in nanoseconds. One question needs no HTTP library.
    fn create(&self, pod: &Value) -> anyhow::Result<f64> {
        let body = pod.to_string();
        let path = "/api/v1/namespaces/default/pods?dryRun=All";
        let head = format!(
            "POST {path} HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}",
            body.len()
        );
        let start = Instant::now();
        let mut stream = TcpStream::connect(&self.address).context("cannot ask kubectl proxy")?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let took = start.elapsed();
        ensure!(answer.split(' ').nth(1) == Some("201"), "the API server answered: {answer}");
        Ok(took.as_secs_f64() * 1e9)
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        let _ = self.proxy.kill();
        let _ = self.proxy.wait();
    }
}

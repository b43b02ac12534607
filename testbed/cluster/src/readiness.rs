//! Waiting until things are as they should be, while watching that nothing dies meanwhile.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use crate::authority::Credentials;
use crate::component::Component;
use crate::place::Place;
use crate::{Error, Kubectl, tied};

/// How long anything is waited for. Each step takes seconds at most; a machine may be a hundred times slower.
pub(crate) const LIMIT: Duration = Duration::from_mins(3);

/// How often is looked.
const PAUSE: Duration = Duration::from_millis(20);

/// How long etcd may take for one answer.
const ANSWER: Duration = Duration::from_secs(5);

/// Waits until `probe` gives something; an error when a component has ended or the limit has passed, with `what`
/// saying what did not happen.
fn until<T>(
    components: &mut [Component],
    what: &str,
    mut probe: impl FnMut() -> Result<Option<T>, Error>,
) -> Result<T, Error> {
    let started = Instant::now();
    loop {
        if let Some(found) = probe()? {
            return Ok(found);
        }
        components.iter_mut().try_for_each(Component::check)?;
        if started.elapsed() > LIMIT {
            return Err(Error::NotReady {
                what: what.to_owned(),
                seconds: LIMIT.as_secs(),
                detail: String::new(),
            });
        }
        thread::sleep(PAUSE);
    }
}

/// Waits until etcd says that it is healthy.
pub(crate) fn etcd(components: &mut [Component], socket: &Path) -> Result<(), Error> {
    until(components, "etcd did not become healthy", || Ok(etcd_healthy(socket).then_some(())))
}

/// Asks etcd once. It speaks HTTP on its socket, and one question needs no HTTP library.
pub(crate) fn etcd_healthy(socket: &Path) -> bool {
    let ask = || -> std::io::Result<String> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(ANSWER))?;
        stream.set_write_timeout(Some(ANSWER))?;
        stream.write_all(b"GET /health HTTP/1.0\r\nHost: etcd\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| answer.contains(r#""health":"true""#))
}

/// The command that asks components for their health over TLS, with the administrator's certificate.
pub(crate) fn await_command(kube: &Path, credentials: &Credentials, limit: Duration) -> Command {
    let mut command = Command::new(kube);
    command
        .arg("await")
        .arg("--ca")
        .arg(&credentials.authority)
        .arg("--cert")
        .arg(&credentials.admin.0)
        .arg("--key")
        .arg(&credentials.admin.1)
        .arg("--timeout")
        .arg(format!("{}s", limit.as_secs()));
    command
}

/// Whether a component is asked on a socket rather than at a URL.
pub(crate) fn is_socket(address: &str) -> bool {
    address.starts_with('/')
}

/// Waits until the URLs of the named components answer that all is well.
pub(crate) fn addresses(
    components: &mut [Component],
    names: &[&str],
    kube: &Path,
    credentials: &Credentials,
) -> Result<(), Error> {
    let asked = components.iter().filter(|it| names.contains(&it.name())).filter_map(Component::address);
    let urls: Vec<&str> = asked.filter(|address| !is_socket(address)).collect();
    if urls.is_empty() {
        return Ok(());
    }
    let mut command = await_command(kube, credentials, LIMIT);
    command.args(urls);
    let what = format!("{} did not become ready", names.join(" and "));
    wait_for_program(components, &what, command)
}

/// Waits until pods can be created: each needs the service account that the controller-manager makes.
pub(crate) fn service_account(components: &mut [Component], kubectl: &Kubectl) -> Result<(), Error> {
    let limit = format!("--timeout={}s", LIMIT.as_secs());
    let command = kubectl.command(["wait", "--for=create", "serviceaccount/default", &limit]);
    wait_for_program(components, "the service account `default` did not appear", command)
}

/// Waits until the nodes are Ready and the taint that every new node carries has been taken off.
pub(crate) fn nodes(components: &mut [Component], kubectl: &Kubectl, names: &[&str]) -> Result<(), Error> {
    let format = concat!(
        "jsonpath={.metadata.name} ",
        r#"{.status.conditions[?(@.type=="Ready")].status} "#,
        r#"{.spec.taints[?(@.key=="node.kubernetes.io/not-ready")].key}{"\n"}"#
    );
    let mut command = kubectl.command(["get", "nodes", "--watch", "--output", format]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let spawned = tied::spawn(command);
    let mut watch = Reaped(spawned.map_err(|source| Error::Spawn { name: "kubectl".to_owned(), source })?);
    let lines = lines_of(&mut watch.0);
    let mut missing: BTreeSet<&str> = names.iter().copied().collect();
    until(components, "the nodes did not become Ready", || {
        loop {
            if missing.is_empty() {
                return Ok(Some(()));
            }
            match lines.try_recv() {
                Ok(line) => note_node(&mut missing, &line),
                Err(TryRecvError::Empty) => return Ok(None),
                Err(TryRecvError::Disconnected) => {
                    return Err(Error::NotReady {
                        what: "the watch on nodes ended before they were Ready".to_owned(),
                        seconds: LIMIT.as_secs(),
                        detail: format!(": still missing {missing:?}"),
                    });
                }
            }
        }
    })
}

/// Takes a node off the missing ones when its line says that it is Ready and untainted.
fn note_node(missing: &mut BTreeSet<&str>, line: &str) {
    if let [name, "True"] = line.split_whitespace().collect::<Vec<_>>()[..] {
        missing.remove(name);
    }
}

/// What a program prints, line by line, read by a thread that ends with it.
fn lines_of(child: &mut Child) -> mpsc::Receiver<String> {
    let (send, lines) = mpsc::channel();
    if let Some(stdout) = child.stdout.take() {
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
    }
    lines
}

/// Waits until a file is there.
pub(crate) fn file(components: &mut [Component], path: &Path) -> Result<(), Error> {
    until(components, &format!("{} did not appear", path.display()), || Ok(path.exists().then_some(())))
}

/// Runs a program that waits by itself; it must succeed.
fn wait_for_program(components: &mut [Component], what: &str, command: Command) -> Result<(), Error> {
    let child = start_waiting(command, &Place::Here)?;
    wait_for(components, what, child)
}

/// Starts a program that ends when something is done.
pub(crate) fn start_waiting(mut command: Command, place: &Place) -> Result<Reaped, Error> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let spawned = tied::spawn_in(command, place);
    spawned.map(Reaped).map_err(|source| Error::Spawn { name: "a program that waits".to_owned(), source })
}

/// Waits for the end of such a program; it must succeed.
pub(crate) fn wait_for(components: &mut [Component], what: &str, mut child: Reaped) -> Result<(), Error> {
    let started = Instant::now();
    let failed = |source| Error::Spawn { name: "a program that waits".to_owned(), source };
    let status = until(components, what, || child.0.try_wait().map_err(failed))?;
    if status.success() {
        return Ok(());
    }
    let mut said = String::new();
    // What cannot be read is left out: that it failed is said in any case.
    let _ = child.0.stdout.take().map(|mut output| output.read_to_string(&mut said));
    let _ = child.0.stderr.take().map(|mut output| output.read_to_string(&mut said));
    Err(Error::NotReady {
        what: what.to_owned(),
        seconds: started.elapsed().as_secs(),
        detail: format!(": {}", said.trim_end()),
    })
}

/// A program that is killed and waited for when it is no longer needed.
#[derive(Debug)]
pub(crate) struct Reaped(Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        // Either it has ended already or it ends now.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

//! What others may know of a cluster: its description, its health, and how to end it from outside.
//!
//! The description lies in the cluster's folder. It is trusted only while the folder's lock is held: then the
//! process ids in it are those of children that nobody has waited for, and can't be anybody else's.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::authority::Credentials;
use crate::component::Component;
use crate::readiness::{await_command, etcd_healthy, is_socket};
use crate::{Error, home};

/// The description's name in the cluster's folder.
const FILE: &str = "cluster.json";

/// How long a process may take to end once it has been told to; the kernel takes the rest with it.
const END: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

/// A cluster as it was started.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClusterDescription {
    /// Whether it has become ready; `false` while it is being started.
    pub ready: bool,
    /// The administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    /// A kubectl of the cluster's version.
    pub kubectl: PathBuf,
    /// The components, in the order in which they were started.
    pub parts: Vec<ComponentDescription>,
    kube: PathBuf,
    credentials: Credentials,
}

/// A component of a cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ComponentDescription {
    /// The component's name.
    pub name: String,
    /// Its process; `None` while it is stopped.
    pub pid: Option<u32>,
    /// Where it can be asked for its health: a URL, or the path of a socket; `None` where it can't be asked.
    pub address: Option<String>,
    /// Its log.
    pub log: PathBuf,
}

/// How a component is doing.
#[derive(Clone, Debug)]
pub struct Health {
    /// Which component.
    pub part: ComponentDescription,
    /// Resident memory in KiB; `None` when the process is not there.
    pub resident_kib: Option<u64>,
    /// What is wrong with it; `None` when nothing is.
    pub trouble: Option<String>,
}

impl ClusterDescription {
    pub(crate) fn of(kube: &Path, credentials: &Credentials, components: &[Component]) -> Self {
        let part = |component: &Component| ComponentDescription {
            name: component.name().to_owned(),
            pid: component.pid(),
            address: component.address().map(str::to_owned),
            log: component.log().to_owned(),
        };
        Self {
            ready: false,
            kubeconfig: credentials.kubeconfig.clone(),
            kubectl: kube.with_file_name("kubectl"),
            parts: components.iter().map(part).collect(),
            kube: kube.to_owned(),
            credentials: credentials.clone(),
        }
    }

    /// The description of the cluster in this folder; `None` when there is none yet.
    pub fn read(folder: &Path) -> Result<Option<Self>, Error> {
        let path = folder.join(FILE);
        match fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            read => {
                let text = read.map_err(Error::file("read", &path))?;
                let parsed = serde_json::from_slice(&text).map_err(std::io::Error::from);
                parsed.map(Some).map_err(Error::file("understand", &path))
            }
        }
    }

    /// Writes the description beside the old one and puts it in its place.
    pub(crate) fn write(mut self, folder: &Path, ready: bool) -> Result<(), Error> {
        self.ready = ready;
        let (path, new) = (folder.join(FILE), folder.join("cluster.json.new"));
        let text = serde_json::to_string_pretty(&self).map_err(std::io::Error::from);
        home::write_private(&new, &text.map_err(Error::file("write", &new))?)?;
        fs::rename(&new, &path).map_err(Error::file("write", &path))
    }

    /// Asks every component how it is doing.
    pub fn health(&self) -> Result<Vec<Health>, Error> {
        let urls: Vec<&str> = self
            .parts
            .iter()
            .filter_map(|part| part.address.as_deref())
            .filter(|it| !is_socket(it))
            .collect();
        let mut ask = await_command(&self.kube, &self.credentials, Duration::ZERO);
        let output = ask.args(&urls).output();
        let output = output.map_err(|source| Error::Spawn { name: "await".to_owned(), source })?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(self.parts.iter().map(|part| health_of(part, &said)).collect())
    }

    /// Ends the cluster in this folder, whoever started it, and removes what is left; `false` when there was none.
    ///
    /// The process that started it is told to end; the kernel ends the components with it.
    pub fn end(folder: &Path) -> Result<bool, Error> {
        let Some(holder) = home::holder(folder)? else { return home::remove_remains(folder) };
        let started = Self::read(folder)?.map(|description| description.parts).unwrap_or_default();
        let keeper = open_process(holder);
        let mut processes: Vec<OwnedFd> =
            started.iter().filter_map(|part| part.pid).filter_map(open_process).collect();
        if let Some(keeper) = keeper {
            // It may have ended by itself just now, which is as good.
            let _ = pidfd_send_signal(&keeper, Signal::TERM);
            processes.push(keeper);
        }
        processes.iter().for_each(wait_for_end);
        // Whoever starts a cluster at this moment removes the remains of dead ones, and may come first.
        home::remove_remains(folder).map(|_| true)
    }
}

/// Judges a component by its process and by what it, or `await` for it, answered.
fn health_of(part: &ComponentDescription, said: &str) -> Health {
    let resident_kib = part.pid.and_then(resident_kib);
    let trouble = match (&part.address, resident_kib) {
        (_, None) => Some(format!("its process has ended; see {}", part.log.display())),
        (None, Some(_)) => None,
        (Some(address), Some(_)) if is_socket(address) => {
            (!etcd_healthy(Path::new(address))).then(|| "it does not say that it is healthy".to_owned())
        }
        (Some(address), Some(_)) => trouble_in(said, address),
    };
    Health { part: part.clone(), resident_kib, trouble }
}

/// What `await` said about an address.
fn trouble_in(said: &str, address: &str) -> Option<String> {
    let bad = format!("bad {address} ");
    let reason = said.lines().find_map(|line| line.strip_prefix(&bad)).map(str::to_owned);
    let ok = said.lines().any(|line| line.strip_prefix("ok ") == Some(address));
    if ok { None } else { Some(reason.unwrap_or_else(|| "it could not be asked".to_owned())) }
}

/// Resident memory of a process; a process that has ended has none, also while nobody has waited for it.
fn resident_kib(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// A handle on a process that stays the process's, whatever becomes of its number.
fn open_process(pid: u32) -> Option<OwnedFd> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

fn wait_for_end(process: &OwnedFd) {
    // Whether it ended in time is seen by the next step, which finds the folder's lock free or not.
    let _ = poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&END));
}

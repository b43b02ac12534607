//! A node's simulated cards, as real cards lie on a real node: a driver installed on the host, and a CDI
//! specification by which the container runtime brings it into a container.
//!
//! All containers of a node map one state file, so they share one set of cards; each node has its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::machine::SimulatedCards;
use crate::{Error, tied};

/// Kind and name of the CDI device that stands for all cards of a node.
pub const CDI_DEVICE: &str = "gpupool.io/simulated-gpu=all";

/// Where the driver is installed on a node: `lib` has the libraries, `bin` nvidia-smi, `state` the cards.
pub const DRIVER: &str = "/var/lib/simgpu";

/// The cards' state on a node and in its containers; the simulated driver is told by `SIMGPU_STATE`.
pub const STATE: &str = "/var/lib/simgpu/state/cards";

/// Where the C library looks for libraries in a container, on Debian and on distributions like it.
const LIBRARIES: &str = "/usr/lib/x86_64-linux-gnu";

/// Installs the driver below the folder that the node has as its root, makes the cards and writes the CDI
/// specification.
pub(crate) fn install(cards: &SimulatedCards, root: &Path) -> Result<(), Error> {
    let driver = root.join(DRIVER.trim_start_matches('/'));
    for (file, folder) in [("libcuda.so.1", "lib"), ("libnvidia-ml.so.1", "lib"), ("nvidia-smi", "bin")] {
        let folder = driver.join(folder);
        create(&folder)?;
        let (from, to) = (cards.driver.join(file), folder.join(file));
        fs::copy(&from, &to).map_err(Error::file("copy the simulated driver's", &from))?;
    }
    let state = driver.join("state");
    create(&state)?;
    // Everybody in every container opens the cards, root or not, as device files are open to all.
    fs::set_permissions(&state, std::os::unix::fs::PermissionsExt::from_mode(0o777))
        .map_err(Error::file("open", &state))?;
    let uuids = make_cards(cards, &driver, &state.join("cards"))?;
    let specifications = root.join("run/cdi");
    create(&specifications)?;
    let path = specifications.join("simulated-gpu.json");
    fs::write(&path, specification(&uuids).to_string()).map_err(Error::file("write", path))
}

fn create(folder: &Path) -> Result<(), Error> {
    fs::create_dir_all(folder).map_err(Error::file("create", folder))
}

/// The first program that looks makes the cards; this one is it. Gives their UUIDs.
fn make_cards(cards: &SimulatedCards, driver: &Path, state: &Path) -> Result<Vec<String>, Error> {
    let mut smi = Command::new(driver.join("bin/nvidia-smi"));
    smi.arg("-L")
        .env("LD_LIBRARY_PATH", driver.join("lib"))
        .env("SIMGPU_STATE", state)
        .env("SIMGPU_CARDS", &cards.cards)
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let failed = |source| Error::Spawn { name: "nvidia-smi of the simulated driver".to_owned(), source };
    let output = tied::spawn(smi).and_then(std::process::Child::wait_with_output).map_err(failed)?;
    if output.status.success() {
        let listed = String::from_utf8_lossy(&output.stdout).into_owned();
        let uuid = |line: &str| Some(line.split_once("UUID: ")?.1.trim_end_matches(')').to_owned());
        return Ok(listed.lines().filter_map(uuid).collect());
    }
    let said = [&output.stdout[..], &output.stderr[..]].concat();
    Err(Error::Cards { cards: cards.cards.clone(), said: String::from_utf8_lossy(&said).trim().to_owned() })
}

/// The specification: the driver's files, the state, and where it is. There is a device for each card too, as a plugin
/// for whole cards names them; a simulated card is no device file, so a container sees all of them all the same.
fn specification(uuids: &[String]) -> Value {
    let mount = |host: PathBuf, container: PathBuf, options: &[&str]| {
        let options = [&["nosuid", "nodev", "rbind", "rprivate"], options].concat();
        json!({"hostPath": host, "containerPath": container, "options": options})
    };
    let driver = Path::new(DRIVER);
    let library = |name: &str| mount(driver.join("lib").join(name), Path::new(LIBRARIES).join(name), &["ro"]);
    let edits = json!({
        "env": [format!("SIMGPU_STATE={STATE}")],
        "mounts": [
            library("libcuda.so.1"),
            library("libnvidia-ml.so.1"),
            mount(driver.join("bin/nvidia-smi"), "/usr/bin/nvidia-smi".into(), &["ro"]),
            mount(driver.join("state"), driver.join("state"), &["rw"]),
        ],
    });
    let names = std::iter::once("all").chain(uuids.iter().map(String::as_str));
    let devices: Vec<Value> = names.map(|name| json!({"name": name, "containerEdits": edits})).collect();
    json!({"cdiVersion": "0.6.0", "kind": "gpupool.io/simulated-gpu", "devices": devices})
}

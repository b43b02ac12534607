//! What the CUDA driver says, as the child prints it and the agent reads it.

use std::fmt::Write as _;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use gpupool_wire::cards as wire;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use super::{CardsError, ContextFigures, Source};

/// The driver's words about all cards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// `cuDriverGetVersion`: 13050 for 13.5.
    pub driver_version: i32,
    /// The driver's own version, as NVML names it: 570.86.15. `None` where that could not be had.
    #[serde(default)]
    pub driver: Option<String>,
    /// The cards in the driver's order, by PCI bus.
    pub cards: Vec<ProbedCard>,
}

/// The driver's words about one card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbedCard {
    /// As NVML writes it: `GPU-` and 32 hexadecimal digits in groups.
    pub uuid: String,
    /// The model.
    pub name: String,
    /// All of its memory in bytes.
    pub total_memory: u64,
    /// PCI domain.
    pub pci_domain: u32,
    /// PCI bus.
    pub pci_bus: u32,
    /// PCI device.
    pub pci_device: u32,
    /// Compute capability, major part.
    pub cc_major: i32,
    /// Compute capability, minor part.
    pub cc_minor: i32,
    /// Pairs of `CUdevice_attribute` and value, for those that the driver answered.
    pub attributes: Vec<(u32, i32)>,
    /// Device memory that one context took, in bytes, as NVML saw it; `None` where that could not be seen.
    pub context_bytes: Option<u64>,
}

impl ProbedCard {
    /// The card as programs read it in the table.
    pub(super) fn on_the_wire(&self, uuid: gpupool_wire::CardUuid, nvml_index: u32) -> wire::Card {
        let mut card = wire::Card::new(uuid).with_name(&self.name);
        card.total_memory = self.total_memory;
        card.pci_domain = self.pci_domain;
        card.pci_bus = self.pci_bus;
        card.pci_device = self.pci_device;
        card.cc_major = self.cc_major;
        card.cc_minor = self.cc_minor;
        card.nvml_index = nvml_index;
        for (number, value) in &self.attributes {
            if let Some(place) = card.attributes.get_mut(*number as usize) {
                *place = *value;
            }
        }
        card
    }
}

/// How long a driver may take to answer for all cards. One that nobody keeps awake starts each of them.
const PATIENCE: Duration = Duration::from_mins(1);

/// Asks the driver, in a child. What a context takes is measured where `figures` do not know it, and kept there.
pub fn probe(source: &Source, figures: &mut ContextFigures) -> Result<Probe, CardsError> {
    let library = source.driver_library();
    let known: Vec<&str> = figures.cards().collect();
    let mut command = Command::new(&source.prober);
    command
        .arg("probe-cards")
        .args(["--driver".as_ref(), library.as_os_str()])
        .args(["--nvml".as_ref(), source.nvml_library().as_os_str()])
        .args(["--measured-with", figures.driver(), "--measured", &known.join(",")])
        // The child must see every card, in an order that does not depend on who asks, and not be a GPU program
        // of ours itself.
        .env("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
        .env_remove("CUDA_VISIBLE_DEVICES")
        .env_remove("LD_PRELOAD")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let output = output_within(&mut command, PATIENCE)
        .map_err(|failure| CardsError::Child { program: source.prober.clone(), source: failure })?;
    let Some(output) = output else {
        return Err(CardsError::Stuck { library, seconds: PATIENCE.as_secs() });
    };
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        let why = words.trim().trim_start_matches("gpupool: ").trim_end_matches('.');
        let why = if why.is_empty() { output.status.to_string() } else { why.to_owned() };
        return Err(CardsError::PoolTask { library, why });
    }
    let mut probe: Probe =
        serde_json::from_slice(&output.stdout).map_err(|failure| CardsError::Answer(failure.to_string()))?;
    if let Some(driver) = &probe.driver {
        let cards = probe.cards.iter_mut();
        figures.complete(driver, cards.map(|card| (card.uuid.as_str(), &mut card.context_bytes)));
    }
    Ok(probe)
}

/// What the command says in that time; nothing when it takes longer. Then it is killed, and nobody waits for its end: a
/// process inside a stuck driver may have none.
fn output_within(command: &mut Command, patience: Duration) -> std::io::Result<Option<Output>> {
    let child = command.spawn()?;
    let pid = Pid::from_child(&child);
    let (ended, end) = mpsc::channel();
    std::thread::spawn(move || {
        // Nobody listens any more where it took too long.
        let _ = ended.send(child.wait_with_output());
    });
    if let Ok(output) = end.recv_timeout(patience) {
        return output.map(Some);
    }
    // The thread has not waited for it yet, so it is still that process.
    let _ = kill_process(pid, Signal::KILL);
    Ok(None)
}

/// Writes a UUID's 16 bytes as NVML does.
pub fn format_uuid(bytes: gpupool_wire::CardUuid) -> String {
    let mut text = String::from("GPU");
    for (number, byte) in bytes.iter().enumerate() {
        if matches!(number, 0 | 4 | 6 | 8 | 10) {
            text.push('-');
        }
        // Writing to a string can't fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Reads what [`format_uuid`] writes, in either case.
pub fn parse_uuid(text: &str) -> Option<gpupool_wire::CardUuid> {
    let groups: Vec<&str> = text.strip_prefix("GPU-")?.split('-').collect();
    if groups.iter().map(|group| group.len()).ne([8, 4, 4, 4, 12]) {
        return None;
    }
    let digits = groups.concat();
    let mut bytes = [0; 16];
    for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks(2)) {
        let pair = std::str::from_utf8(pair).ok().filter(|pair| !pair.starts_with('+'))?;
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_written_as_nvml_does_and_read_back() {
        let bytes = [0x1f, 0x2e, 0x3d, 0x4c, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0xff];
        let text = "GPU-1f2e3d4c-0506-0708-090a-0b0c0d0e0fff";
        assert_eq!(format_uuid(bytes), text);
        assert_eq!(parse_uuid(text), Some(bytes));
        for wrong in
            ["", "GPU-", "1f2e3d4c-0506-0708-090a-0b0c0d0e0fff", &text.replace('f', "g"), &text[..39]]
        {
            assert_eq!(parse_uuid(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_table_keeps_what_the_driver_answered_and_nothing_else() {
        let card = ProbedCard {
            uuid: format_uuid([1; 16]),
            name: "a model".to_owned(),
            total_memory: 5,
            pci_domain: 0,
            pci_bus: 3,
            pci_device: 1,
            cc_major: 9,
            cc_minor: 0,
            attributes: vec![(16, 108), (9999, 1)],
            context_bytes: None,
        };
        let wire = card.on_the_wire([1; 16], 2);
        assert_eq!((wire.name(), wire.nvml_index, wire.attribute(16)), ("a model", 2, Some(108)));
        assert_eq!(wire.attribute(17), None);
    }

    #[test]
    fn who_does_not_answer_in_time_is_killed_and_not_waited_for() {
        let sleeping = |seconds: &str| {
            let mut command = Command::new("sleep");
            command.arg(seconds).stdout(Stdio::piped()).stderr(Stdio::piped());
            command
        };
        assert!(output_within(&mut sleeping("0"), Duration::from_mins(1)).unwrap().is_some());
        let began = std::time::Instant::now();
        assert!(output_within(&mut sleeping("1000"), Duration::from_millis(10)).unwrap().is_none());
        assert!(began.elapsed() < Duration::from_mins(1));
    }
}

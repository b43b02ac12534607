//! How much of a card each process used, ten times a second, from a thread of its own that sleeps while nobody needs
//! to know.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gpupool_core::pool::CardUuid;
use nvml_wrapper::Nvml;

use super::controller::WINDOW;
use crate::worker::{NOBODY_LISTENS, Workers};

/// How often the cards are looked at.
const PERIOD: Duration = Duration::from_millis(100);

/// What NVML says of one card.
#[derive(Debug, Clone)]
pub(crate) struct Shares {
    /// Which card.
    pub(crate) card: CardUuid,
    /// Part of the last moments in which the card worked at all, 0 to 1; `None` where NVML does not say.
    pub(crate) card_used: Option<f64>,
    /// Part of the last window that it worked for each process, by process id, 0 to 1; those that it did not work for
    /// are left out. `None` where NVML does not say.
    pub(crate) by_process: Option<BTreeMap<u32, f64>>,
}

/// Where the meter hears which cards to read.
#[derive(Debug)]
pub(crate) struct Meter {
    wishes: Sender<BTreeSet<CardUuid>>,
    wished: BTreeSet<CardUuid>,
}

impl Meter {
    /// A meter on this NVML, telling `tell` for as long as that wants to hear more. Reads nothing yet.
    pub(crate) fn start(
        library: &Path,
        workers: &Workers,
        tell: impl Fn(Vec<Shares>) -> bool + Send + 'static,
    ) -> std::io::Result<Self> {
        let (wishes, wanted) = channel();
        let library = library.to_owned();
        workers.start("core-limit", move || match Nvml::builder().lib_path(library.as_os_str()).init() {
            Ok(nvml) => {
                read(&nvml, &wanted, tell);
                NOBODY_LISTENS.to_owned()
            }
            Err(failure) => format!("NVML cannot be opened: {failure}"),
        })?;
        Ok(Self { wishes, wished: BTreeSet::new() })
    }

    /// From now on these cards are read.
    pub(crate) fn read_cards(&mut self, cards: BTreeSet<CardUuid>) {
        if cards != self.wished {
            self.wished.clone_from(&cards);
            // The thread ends only with the agent.
            let _ = self.wishes.send(cards);
        }
    }
}

fn read(nvml: &Nvml, wanted: &Receiver<BTreeSet<CardUuid>>, tell: impl Fn(Vec<Shares>) -> bool) {
    let mut cards = BTreeSet::new();
    loop {
        let wish = if cards.is_empty() {
            wanted.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            wanted.recv_timeout(PERIOD)
        };
        match wish {
            Ok(wish) => cards = wish,
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                if !tell(cards.iter().map(|card| read_card(nvml, card)).collect()) {
                    return;
                }
            }
        }
    }
}

fn read_card(nvml: &Nvml, card: &CardUuid) -> Shares {
    let nothing = Shares { card: card.clone(), card_used: None, by_process: None };
    let Ok(device) = nvml.device_by_uuid(card.as_str()) else { return nothing };
    let part = |percent: u32| f64::from(percent.min(100)) / 100.0;
    let since = SystemTime::now() - WINDOW;
    let since = since.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
    let samples = device.process_utilization_stats(u64::try_from(since).unwrap_or(0));
    Shares {
        card: card.clone(),
        card_used: device.utilization_rates().ok().map(|rates| part(rates.gpu)),
        by_process: samples
            .ok()
            .filter(|samples| !samples.is_empty())
            .map(|samples| samples.into_iter().map(|sample| (sample.pid, part(sample.sm_util))).collect()),
    }
}

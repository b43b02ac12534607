//! What stands below the table: processes that are not held to their limits, memory that no ledger counts, cards that are
//! held back.

use std::fmt::Write as _;

use gpupool_agent::admin_api::Status;

use super::age;

/// Unaccounted memory up to here is not worth a line, in bytes: a context differs a little from what it is charged.
const WORTH_A_LINE: u64 = 64 << 20;

/// A line for each, after an empty line; nothing where there are none.
pub(super) fn lines(status: &Status) -> String {
    let mut text = String::new();
    for pod in &status.pods {
        if let Some(termination) = &pod.termination {
            let ago = age(termination.ago_seconds);
            line(&mut text, &format!("{}, {ago} ago: {termination}", pod.name));
        }
        for process in &pod.hold.not_held {
            let (pid, card, taken) = (process.pid, process.card, taken(process.memory_bytes));
            line(
                &mut text,
                &format!("{}: process {pid} on card {card} is not held: {}{taken}", pod.name, process.why),
            );
        }
        let unaccounted = pod.hold.unaccounted_bytes.filter(|bytes| *bytes > WORTH_A_LINE);
        if let Some(bytes) = unaccounted.filter(|_| pod.hold.not_held.is_empty()) {
            line(&mut text, &format!("{}: {} MiB are not counted by its ledger", pod.name, bytes >> 20));
        }
    }
    for card in &status.cards {
        for reason in &card.held_back {
            line(&mut text, &format!("card {} is held back: {reason}", card.index));
        }
    }
    for stranger in &status.strangers {
        let (pid, card, taken) = (stranger.pid, stranger.card, taken(stranger.memory_bytes));
        line(&mut text, &format!("card {card}: process {pid} belongs to no pod{taken}"));
    }
    text
}

fn line(text: &mut String, sentence: &str) {
    if text.is_empty() {
        text.push('\n');
    }
    // Writing to a string can't fail.
    let _ = writeln!(text, "{sentence}");
}

fn taken(bytes: Option<u64>) -> String {
    bytes.map_or_else(String::new, |bytes| format!("; it takes {} MiB", bytes >> 20))
}

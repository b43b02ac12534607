//! `gpupool status`: cards, leases and queue, as a table for people or as JSON for programs.

mod remarks;

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use anyhow::bail;
use clap::ValueEnum;
use gpupool_agent::admin_api::{Hold, LeaseStatus, PodStatus, Reply, Request, Status};
use gpupool_core::pool::PodState;

use crate::agent_socket::SocketArgs;

/// Options of `gpupool status`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    socket: SocketArgs,
    /// How to print it; docs/status-schema.md describes the JSON
    #[arg(long, value_enum, default_value_t = OutputFormat::Table)]
    output: OutputFormat,
}

/// `--output`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OutputFormat {
    /// For people
    Table,
    /// For programs
    Json,
}

/// Prints the agent's status.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut agent = args.socket.connect()?;
    let status = match agent.ask(&Request::Status {})? {
        Reply::Status(status) => *status,
        Reply::Refused(refused) => bail!("{}", refused.sentence),
        other => bail!("the agent answers something else: {other:?}"),
    };
    let text = match args.output {
        OutputFormat::Table => table(&status),
        OutputFormat::Json => serde_json::to_string_pretty(&status)? + "\n",
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn table(status: &Status) -> String {
    let mut cards = vec![row(["CARD", "MODEL", "CORE", "MEMORY", "PODS"])];
    for card in &status.cards {
        cards.push([
            card.index.to_string(),
            card.name.clone(),
            format!("{}%", card.core_used_percent),
            format!("{}%", card.memory_used_percent),
            match (card.lost, card.pods.is_empty()) {
                (true, _) => "(lost)".to_owned(),
                (false, true) => "-".to_owned(),
                (false, false) => card.pods.join(", "),
            },
        ]);
    }
    let mut text = lines(&cards);
    if status.pods.is_empty() {
        text.push_str("\nNo pods. Start one with gpupool run --core 50 --memory 50 -- command\n");
        text.push_str(&remarks::lines(status));
        return text;
    }
    let mut pods = vec![row(["POD", "STATE", "SINCE", "CARD", "CORE", "MEMORY", "USED", "HELD"])];
    pods.extend(in_order(status).into_iter().map(|pod| pod_row(status, pod)));
    text.push('\n');
    text.push_str(&lines(&pods));
    text.push_str(&remarks::lines(status));
    text
}

/// Running pods first, the oldest grant first; then the queue; then who hibernates, by name.
fn in_order(status: &Status) -> Vec<&PodStatus> {
    let place = |pod: &&PodStatus| {
        let lease = status.leases.iter().position(|lease| lease.pod == pod.name);
        let queued = status.queue.iter().position(|waiting| waiting.pod == pod.name);
        (lease.unwrap_or(usize::MAX), queued.unwrap_or(usize::MAX))
    };
    let mut pods: Vec<&PodStatus> = status.pods.iter().collect();
    pods.sort_by_key(place);
    pods
}

fn pod_row(status: &Status, pod: &PodStatus) -> [String; 8] {
    let lease = status.leases.iter().find(|lease| lease.pod == pod.name);
    let waiting = status.queue.iter().find(|waiting| waiting.pod == pod.name);
    let state = match (pod.state, waiting) {
        (PodState::Ready, Some(waiting)) => format!("ready, {} in line", ordinal(waiting.position)),
        (PodState::Ready, None) => "ready".to_owned(),
        (PodState::Running, _) if lease.is_some_and(|lease| lease.ending.is_some()) => "ending".to_owned(),
        (PodState::Running, _) => "running".to_owned(),
        (PodState::Hibernating, _) if pod.stopping => "stopping".to_owned(),
        (PodState::Hibernating, _) => "hibernating".to_owned(),
    };
    let since = lease.map(|lease| lease.age_seconds).or_else(|| Some(waiting?.waiting_seconds));
    [
        pod.name.clone(),
        state,
        since.map_or_else(|| "-".to_owned(), age),
        lease.map_or_else(|| "-".to_owned(), |lease| lease.card.to_string()),
        pod.core.to_string(),
        pod.memory.to_string(),
        lease.map_or_else(|| "-".to_owned(), used),
        held(pod.hold.memory).to_owned(),
    ]
}

fn used(lease: &LeaseStatus) -> String {
    let mebibytes = |bytes: u64| bytes >> 20;
    match lease.memory_used_bytes {
        Some(bytes) => format!("{} of {} MiB", mebibytes(bytes), mebibytes(lease.memory_limit_bytes)),
        None => format!("? of {} MiB", mebibytes(lease.memory_limit_bytes)),
    }
}

/// Whether the pod is held to its memory limit, in a word.
const fn held(by: Hold) -> &'static str {
    match by {
        Hold::Unused => "-",
        Hold::Unlimited | Hold::Shim => "yes",
        Hold::Partly => "partly",
        Hold::Nothing => "NO",
    }
}

fn ordinal(position: u32) -> String {
    match (position % 10, position % 100) {
        (1, last) if last != 11 => format!("{position}st"),
        (2, last) if last != 12 => format!("{position}nd"),
        (3, last) if last != 13 => format!("{position}rd"),
        _ => format!("{position}th"),
    }
}

/// Seconds as people say them: `12s`, `3m20s`, `2h05m`, `3d04h`.
fn age(seconds: f64) -> String {
    let whole = std::time::Duration::try_from_secs_f64(seconds).unwrap_or_default().as_secs();
    match whole {
        0..60 => format!("{whole}s"),
        60..3600 => format!("{}m{:02}s", whole / 60, whole % 60),
        3600..86_400 => format!("{}h{:02}m", whole / 3600, whole % 3600 / 60),
        _ => format!("{}d{:02}h", whole / 86_400, whole % 86_400 / 3600),
    }
}

fn row<const N: usize>(cells: [&str; N]) -> [String; N] {
    cells.map(str::to_owned)
}

/// Rows with their columns set below one another.
fn lines<const N: usize>(rows: &[[String; N]]) -> String {
    let widths: Vec<usize> =
        (0..N).map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            // Writing to a string can't fail.
            let _ = write!(line, "{cell:width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_short() {
        for (seconds, text) in [
            (0.4, "0s"),
            (59.9, "59s"),
            (200.0, "3m20s"),
            (7500.0, "2h05m"),
            (273_600.0, "3d04h"),
            (-1.0, "0s"),
        ] {
            assert_eq!(age(seconds), text);
        }
    }

    #[test]
    fn places_have_their_english_endings() {
        assert_eq!(
            [1, 2, 3, 4, 11, 12, 13, 21, 112].map(ordinal).join(" "),
            "1st 2nd 3rd 4th 11th 12th 13th 21st 112th"
        );
    }

    #[test]
    fn columns_stand_below_one_another() {
        let rows = [row(["A", "LONG"]), row(["wide", "x"])];
        assert_eq!(lines(&rows), "A     LONG\nwide  x\n");
    }
}

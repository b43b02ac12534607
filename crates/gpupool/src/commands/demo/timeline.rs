//! How the demo shows itself: a picture that moves on a terminal, lines elsewhere.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::{Duration, Instant};

use gpupool_agent::admin_api::{PodStatus, Status};
use gpupool_core::pool::PodState;

/// What one column of the picture stands for.
const COLUMN: Duration = Duration::from_millis(150);

/// Columns of the picture; what is older runs out on the left.
const COLUMNS: usize = 56;

/// Escape sequences: to the line's end in grey, in green, in yellow; back to normal; to the line's end empty.
const GREY: &str = "\x1b[90m";
const GREEN: &str = "\x1b[32m";
const YELLOW: &str = "\x1b[33m";
const NORMAL: &str = "\x1b[0m";
const CLEAR_LINE: &str = "\x1b[K";

/// The state of a program, as the picture shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProgramState {
    Unregistered,
    Hibernating,
    Waiting(u32),
    Running(u32),
}

/// The picture, or the log.
#[derive(Debug)]
pub(super) struct Timeline {
    start: Instant,
    terminal: bool,
    rows: BTreeMap<String, Row>,
    notes: Vec<String>,
    drawn: usize,
}

#[derive(Debug)]
struct Row {
    now: ProgramState,
    past: Vec<ProgramState>,
}

impl Timeline {
    /// A timeline of these programs.
    pub(super) fn begin(names: &[&str], terminal: bool) -> std::io::Result<Self> {
        let row = || Row { now: ProgramState::Unregistered, past: Vec::new() };
        let rows = names.iter().map(|name| ((*name).to_owned(), row())).collect();
        let timeline = Self { start: Instant::now(), terminal, rows, notes: Vec::new(), drawn: 0 };
        let head = "Four programs share two simulated cards. A, B: 50 % of a card. C, D: ask for 50 %, may use 100 %.";
        writeln!(std::io::stdout(), "{head}\n")?;
        Ok(timeline)
    }

    /// Adds a line about what the demo itself does.
    pub(super) fn note(&mut self, words: &str) -> std::io::Result<()> {
        self.log(words)?;
        self.draw()
    }

    /// Shows what has changed with the agent's new status.
    pub(super) fn show(&mut self, status: &Status) -> std::io::Result<()> {
        let mut changes = Vec::new();
        for (name, row) in &mut self.rows {
            let now = program_state(status, status.pods.iter().find(|pod| pod.name == *name));
            let before = std::mem::replace(&mut row.now, now);
            if let Some(sentence) = sentence(before, now) {
                changes.push((order(status, name, now), format!("{name} {sentence}")));
            }
        }
        changes.sort();
        for (_, words) in changes {
            self.log(&words)?;
        }
        self.draw()
    }

    /// Draws the picture for the last time, and these lines below it.
    pub(super) fn close(mut self, words: &[String]) -> std::io::Result<()> {
        self.draw()?;
        let mut out = std::io::stdout().lock();
        // On a terminal, below the picture; in a log, apart from what happened.
        writeln!(out)?;
        for line in words {
            writeln!(out, "{line}")?;
        }
        out.flush()
    }

    fn log(&mut self, words: &str) -> std::io::Result<()> {
        let line = format!("{:6.2} s  {words}", self.start.elapsed().as_secs_f64());
        if self.terminal {
            self.notes.push(line);
            return Ok(());
        }
        let mut out = std::io::stdout().lock();
        writeln!(out, "{line}")?;
        out.flush()
    }

    /// Draws the picture again, on a terminal.
    pub(super) fn draw(&mut self) -> std::io::Result<()> {
        if !self.terminal {
            return Ok(());
        }
        let columns =
            usize::try_from(self.start.elapsed().as_millis() / COLUMN.as_millis()).unwrap_or(COLUMNS);
        let mut picture = String::new();
        for (name, row) in &mut self.rows {
            while row.past.len() <= columns {
                row.past.push(row.now);
            }
            // A column shows what lasts, or what came last in it.
            if let Some(last) = row.past.last_mut() {
                *last = row.now;
            }
            let shown = row.past.len().saturating_sub(COLUMNS);
            let bar: String = row.past.iter().skip(shown).map(|state| cell(*state)).collect();
            picture.extend(["  ", name, "  ", &bar, NORMAL, "  ", &label(row.now), CLEAR_LINE, "\n"]);
        }
        picture.extend([CLEAR_LINE, "\n"]);
        for note in &self.notes {
            picture.extend([note, CLEAR_LINE, "\n"]);
        }
        let mut out = std::io::stdout().lock();
        if self.drawn > 0 {
            write!(out, "\x1b[{}A", self.drawn)?;
        }
        self.drawn = picture.lines().count();
        out.write_all(picture.as_bytes())?;
        out.flush()
    }
}

fn program_state(status: &Status, pod: Option<&PodStatus>) -> ProgramState {
    let Some(pod) = pod else { return ProgramState::Unregistered };
    let lease = status.leases.iter().find(|lease| lease.pod == pod.name);
    let waiting = status.queue.iter().find(|waiting| waiting.pod == pod.name);
    match (pod.state, lease, waiting) {
        (PodState::Running, Some(lease), _) => ProgramState::Running(lease.card),
        (PodState::Ready, _, Some(waiting)) => ProgramState::Waiting(waiting.position),
        _ => ProgramState::Hibernating,
    }
}

/// In which order changes of one moment are told: who left, who got a card by the order of the grants, who waits.
fn order(status: &Status, name: &str, now: ProgramState) -> (u8, u64) {
    match now {
        ProgramState::Unregistered | ProgramState::Hibernating => (0, 0),
        ProgramState::Running(_) => {
            (1, status.leases.iter().find(|lease| lease.pod == name).map_or(0, |lease| lease.lease))
        }
        ProgramState::Waiting(position) => (2, u64::from(position)),
    }
}

/// What to say about a change; nothing about the steps on the way to an end.
fn sentence(before: ProgramState, now: ProgramState) -> Option<String> {
    match (before, now) {
        (before, now) if before == now => None,
        (_, ProgramState::Running(card)) => Some(format!("runs on card {card}")),
        (_, ProgramState::Waiting(position)) => Some(format!("waits, number {position} in the queue")),
        (ProgramState::Unregistered, ProgramState::Hibernating) => None,
        (_, ProgramState::Hibernating) => Some("has left its card".to_owned()),
        (_, ProgramState::Unregistered) => Some("has ended".to_owned()),
    }
}

fn cell(state: ProgramState) -> String {
    match state {
        ProgramState::Unregistered => " ".to_owned(),
        ProgramState::Hibernating => format!("{GREY}·"),
        ProgramState::Waiting(_) => format!("{YELLOW}░"),
        ProgramState::Running(_) => format!("{GREEN}█"),
    }
}

fn label(state: ProgramState) -> String {
    match state {
        ProgramState::Unregistered => String::new(),
        ProgramState::Hibernating => "hibernating".to_owned(),
        ProgramState::Waiting(position) => format!("ready, {position} in the queue"),
        ProgramState::Running(card) => format!("running on card {card}"),
    }
}

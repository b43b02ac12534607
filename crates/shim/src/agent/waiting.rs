//! What a waiting program is told, and how often.

use crate::text::Text;

/// Until the first line: short waits stay silent.
const FIRST_AFTER: u64 = 3_000;
/// Between two lines.
const EVERY: u64 = 5_000;
/// Between two reminders that the agent is away.
const AWAY_EVERY: u64 = 30_000;

/// The line that users of the published system know, with its line end.
pub(crate) fn waiting_line(seconds: u64, position: u32) -> Text {
    let mut line = Text::new();
    line.add(b"You have been waiting for ")
        .add_number(seconds)
        .add(b" seconds. Approximate position: ")
        // The page says 0 until the agent has queued the pod; it will not be before the head.
        .add_number(u64::from(position.max(1)))
        .add(b"\n");
    line
}

/// Said when the agent does not answer.
pub(crate) const AWAY_LINE: &[u8] = "gpupool: the agent is away, waiting for it …\n".as_bytes();
/// What a program is told that has no means to reach its agent.
pub(crate) const UNABLE_LINE: &[u8] =
    b"gpupool: no socket, descriptor or memory to reach the agent with: this program gets no card.\n";
/// What it is told whose agent answers in a version that is not known here.
pub(crate) const OTHER_VERSION: &[u8] = b"The agent is of another release: start this container anew.";

/// When the waiting lines are due. Times are milliseconds of one clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    since: u64,
    next: u64,
}

impl Wait {
    /// A wait that begins now.
    pub(crate) const fn begin(now: u64) -> Self {
        Self { since: now, next: now + FIRST_AFTER }
    }

    /// Milliseconds until the next line.
    pub(crate) const fn until_next(&self, now: u64) -> u64 {
        self.next.saturating_sub(now)
    }

    /// Whole seconds waited, if a line is due now. Lines that were missed are not made up for.
    pub(crate) const fn due(&mut self, now: u64) -> Option<u64> {
        if now < self.next {
            return None;
        }
        self.next = now + EVERY;
        Some(now.saturating_sub(self.since) / 1000)
    }
}

/// When to say that the agent is away, and how long to pause before the next attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Absence {
    next_line: u64,
    pause: u64,
}

impl Absence {
    const FIRST_PAUSE: u64 = 20;
    const LONGEST_PAUSE: u64 = 1_000;

    /// The agent has not been missed yet.
    pub(crate) const fn none() -> Self {
        Self { next_line: 0, pause: Self::FIRST_PAUSE }
    }

    /// Whether to say so now.
    pub(crate) const fn due(&mut self, now: u64) -> bool {
        if now < self.next_line {
            return false;
        }
        self.next_line = now + AWAY_EVERY;
        true
    }

    /// Milliseconds to pause; twice as long each time, up to a second.
    pub(crate) fn pause(&mut self) -> u64 {
        let pause = self.pause;
        self.pause = (pause * 2).min(Self::LONGEST_PAUSE);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_the_published_one() {
        let line = waiting_line(17, 4);
        assert_eq!(line.as_bytes(), b"You have been waiting for 17 seconds. Approximate position: 4\n");
    }

    #[test]
    fn a_pod_that_is_not_queued_yet_is_told_the_first_place() {
        assert!(waiting_line(3, 0).as_bytes().ends_with(b": 1\n"));
    }

    #[test]
    fn short_waits_are_silent_and_long_ones_heard_every_few_seconds() {
        let mut wait = Wait::begin(1_000);
        assert_eq!(wait.due(3_999), None);
        assert_eq!(wait.until_next(3_999), 1);
        assert_eq!(wait.due(4_000), Some(3));
        assert_eq!(wait.due(4_001), None);
        assert_eq!(wait.due(9_000), Some(8));
    }

    #[test]
    fn missed_lines_are_not_made_up_for() {
        let mut wait = Wait::begin(0);
        assert_eq!(wait.due(60_000), Some(60));
        assert_eq!(wait.due(60_001), None);
    }

    #[test]
    fn an_absence_is_reported_at_once_and_then_seldom() {
        let mut absence = Absence::none();
        assert!(absence.due(5));
        assert!(!absence.due(20_000));
        assert!(absence.due(30_005));
        let pauses: Vec<u64> = (0..8).map(|_| absence.pause()).collect();
        assert_eq!(pauses, [20, 40, 80, 160, 320, 640, 1_000, 1_000]);
    }
}

//! The log of a daemon on standard error, which never holds the daemon up: its lines wait in a bounded buffer for a thread
//! that writes them. Where nobody reads (a pipe is full), lines are lost, counted, and once somebody reads again the log
//! says how many.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt::Display;
use std::io::{self, Write};
use std::mem;
use std::panic;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

/// Bytes that may wait to be written: thousands of lines.
const ROOM: usize = 1 << 20;

/// How long the end of the process waits for a reader.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The process's log, if it has begun one.
static LOG: OnceLock<LogWriter> = OnceLock::new();

/// Where lines wait.
#[derive(Debug)]
pub(crate) struct LogWriter {
    /// Stands before the lines that are not events: losses and panics.
    name: &'static str,
    room: usize,
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    lines: Vec<u8>,
    /// Whether the thread has taken lines and not written all of them yet.
    writing: bool,
    /// Lines that were lost since the log last said so. Until it has, no other is taken in: what it says stands where
    /// they would have stood.
    untold: u64,
    /// All that were lost.
    lost: u64,
}

impl LogWriter {
    fn new(name: &'static str, room: usize) -> Self {
        Self { name, room, waiting: Mutex::default(), changed: Condvar::new() }
    }

    /// What waits is whole between any two statements, whoever panicked.
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a line in, or counts it as lost.
    fn add(&self, line: &[u8]) {
        let mut waiting = self.waiting();
        if waiting.untold > 0 || waiting.lines.len() + line.len() > self.room {
            waiting.untold += 1;
            waiting.lost += 1;
        } else {
            waiting.lines.extend_from_slice(line);
        }
        self.changed.notify_all();
    }

    /// Writes lines as they come, for ever.
    fn write_to(&self, mut out: impl Write) -> ! {
        loop {
            let nothing = |waiting: &mut Waiting| waiting.lines.is_empty() && waiting.untold == 0;
            let mut waiting =
                self.changed.wait_while(self.waiting(), nothing).unwrap_or_else(PoisonError::into_inner);
            let mut lines = mem::take(&mut waiting.lines);
            let untold = mem::take(&mut waiting.untold);
            waiting.writing = true;
            drop(waiting);
            if untold > 0 {
                let lost =
                    format!("{}: {untold} lines of this log were lost, because nobody read it\n", self.name);
                lines.extend_from_slice(lost.as_bytes());
            }
            // Where nobody can ever read it any more, nobody is left to tell.
            let _ = out.write_all(&lines).and_then(|()| out.flush());
            self.waiting().writing = false;
            self.changed.notify_all();
        }
    }

    /// Waits until everything is written, but not for a reader that does not read.
    fn drain(&self, limit: Duration) {
        let unwritten =
            |waiting: &mut Waiting| waiting.writing || !waiting.lines.is_empty() || waiting.untold > 0;
        drop(self.changed.wait_timeout_while(self.waiting(), limit, unwritten));
    }
}

/// A line's way in: everything that is written to it at once is one line.
#[derive(Debug)]
pub(crate) struct Line(&'static LogWriter);

impl Write for Line {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.add(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Begins the process's log, and gives what makes its lines. Panics go there too: who panics must not wait for a reader
/// either.
pub(crate) fn begin(name: &'static str) -> io::Result<impl Fn() -> Line + Send + Sync + 'static> {
    let log = LOG.get_or_init(|| LogWriter::new(name, ROOM));
    thread::Builder::new().name("log".to_owned()).spawn(|| log.write_to(io::stderr()))?;
    panic::set_hook(Box::new(move |panic| {
        let backtrace = Backtrace::capture();
        let backtrace = if backtrace.status() == BacktraceStatus::Captured {
            backtrace.to_string()
        } else {
            String::new()
        };
        let thread = thread::current();
        last_words(&format!(
            "{name}: thread {}: {panic}\n{backtrace}",
            thread.name().unwrap_or("without a name")
        ));
    }));
    Ok(move || Line(log))
}

/// How many lines were lost since the process started.
pub(crate) fn lines_lost() -> u64 {
    LOG.get().map_or(0, |log| log.waiting().lost)
}

/// Waits a moment for what was logged to be written.
pub(crate) fn drain() {
    if let Some(log) = LOG.get() {
        log.drain(LAST_WORDS);
    }
}

/// Says a line on standard error when the process ends: through the log, if it has one.
pub(crate) fn last_words(line: &(impl Display + ?Sized)) {
    match LOG.get() {
        Some(log) => log.add(format!("{line}\n").as_bytes()),
        // Nobody is left to tell when standard error is closed.
        None => drop(writeln!(io::stderr(), "{line}")),
    }
    drain();
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// Takes writes when it is told to, and says what they were.
    struct Reader {
        may: Receiver<()>,
        read: Sender<String>,
    }

    impl Write for Reader {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.may.recv().map_err(io::Error::other)?;
            self.read.send(String::from_utf8_lossy(bytes).into_owned()).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_stops_holds_nobody_up_and_hears_afterwards_what_it_missed() {
        let log: &'static LogWriter = Box::leak(Box::new(LogWriter::new("daemon", 8)));
        let (go, may) = channel();
        let (read, heard) = channel();
        thread::spawn(move || log.write_to(Reader { may, read }));
        log.add(b"one\n");
        // The thread holds the first line, and has room for two others behind it.
        while !log.waiting().writing {
            thread::yield_now();
        }
        for line in ["two\n", "thr\n", "lost\n", "x\n"] {
            log.add(line.as_bytes());
        }
        assert_eq!(log.waiting().lost, 2, "a short line does not overtake a lost one");
        log.drain(Duration::from_millis(1));
        assert!(log.waiting().writing, "the end of the process does not wait for such a reader");
        go.send(()).unwrap();
        assert_eq!(heard.recv().unwrap(), "one\n");
        go.send(()).unwrap();
        let lost = "daemon: 2 lines of this log were lost, because nobody read it\n";
        assert_eq!(heard.recv().unwrap(), format!("two\nthr\n{lost}"));
        log.add(b"new\n");
        go.send(()).unwrap();
        assert_eq!(heard.recv().unwrap(), "new\n");
        log.drain(Duration::MAX);
        let waiting = log.waiting();
        assert_eq!((waiting.lost, waiting.untold), (2, 0), "they are told once, and stay counted");
    }
}

//! What is logged in the thread of a test, for the test to read.

use std::cell::RefCell;
use std::io;
use std::sync::Once;

thread_local! {
    static LOGGED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Adds what is written to what this thread has logged.
struct Thread;

impl io::Write for Thread {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOGGED.with_borrow_mut(|logged| logged.extend_from_slice(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What was logged in this thread since this was asked last; the first question, by whichever test, begins it.
pub(crate) fn take() -> Vec<String> {
    static BEGUN: Once = Once::new();
    BEGUN.call_once(|| {
        let log = tracing_subscriber::fmt().with_writer(|| Thread).with_ansi(false);
        log.without_time().with_level(false).with_target(false).init();
    });
    let logged = LOGGED.take();
    String::from_utf8_lossy(&logged).lines().map(str::to_owned).collect()
}

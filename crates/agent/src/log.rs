//! What the agent says to whoever runs it: lines on standard error.

/// One line for whoever reads the agent's standard error.
#[cfg(not(test))]
pub(crate) fn say(line: &str) {
    use std::io::Write as _;
    // Nobody may be there to read it.
    let _ = writeln!(std::io::stderr(), "gpupool agent: {line}");
}

#[cfg(test)]
pub(crate) use said::{say, take};

#[cfg(test)]
mod said {
    //! Lines kept for the test that runs in this thread.

    use std::cell::RefCell;

    thread_local! {
        static LINES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }

    pub(crate) fn say(line: &str) {
        LINES.with_borrow_mut(|lines| lines.push(line.to_owned()));
    }

    /// What was said in this thread since this was asked last.
    pub(crate) fn take() -> Vec<String> {
        LINES.take()
    }
}

//! What the agent says to whoever runs it: lines on standard error.

/// One line for whoever reads the agent's standard error.
pub(crate) fn say(line: &str) {
    use std::io::Write as _;
    // Nobody may be there to read it.
    let _ = writeln!(std::io::stderr(), "gpupool agent: {line}");
}

//! The table that `cargo xtask bench` prints: what was measured, both sides of it, and the bar.

#![allow(clippy::print_stdout, reason = "the table is this task's output")]

/// One measured line. Times are in nanoseconds.
#[derive(Debug)]
pub(crate) struct Line {
    /// What was measured.
    pub(crate) what: String,
    /// The bare call, or the peer's way, in the same run.
    pub(crate) bare: Figure,
    /// The same with gpupool.
    pub(crate) ours: Figure,
    /// What the design asks for, and whether it was met.
    pub(crate) bar: Option<Bar>,
}

/// A measured value in its unit.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Figure {
    /// There is no such side.
    None,
    /// A duration in nanoseconds.
    Nanoseconds(f64),
    /// Events a second.
    PerSecond(f64),
    /// Peak memory in bytes.
    Bytes(f64),
    /// Bytes read a second.
    BytesPerSecond(f64),
}

/// A bar of the design.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Bar {
    /// Ours may take at most so many nanoseconds more than the bare call.
    Over(f64),
    /// Ours may take at most so many nanoseconds.
    Within(f64),
    /// At least so many a second.
    Rate(f64),
    /// Ours may take at most this many times the bare one.
    Times(f64),
    /// The bare side must take at least this many times ours.
    Faster(f64),
    /// Ours may take at most so many bytes of memory.
    Memory(f64),
}

impl Bar {
    /// Whether the line keeps this bar; a side that is missing keeps none.
    fn met(self, bare: Figure, ours: Figure) -> bool {
        match (self, bare, ours) {
            (Self::Over(most), Figure::Nanoseconds(bare), Figure::Nanoseconds(ours)) => ours - bare <= most,
            (Self::Within(most), _, Figure::Nanoseconds(ours))
            | (Self::Memory(most), _, Figure::Bytes(ours)) => ours <= most,
            (Self::Rate(least), _, Figure::PerSecond(ours)) => ours >= least,
            (Self::Times(most), Figure::Nanoseconds(bare), Figure::Nanoseconds(ours)) => ours <= most * bare,
            (Self::Faster(least), Figure::Nanoseconds(bare), Figure::Nanoseconds(ours)) => {
                bare >= least * ours
            }
            _ => false,
        }
    }

    fn text(self) -> String {
        match self {
            Self::Over(most) => format!("≤ {} over", duration(most)),
            Self::Within(most) => format!("≤ {}", duration(most)),
            Self::Rate(least) => format!("≥ {least:.0}/s"),
            Self::Times(most) => format!("≤ {most:.1} ×"),
            Self::Faster(least) => format!("≥ {least:.0} × faster"),
            Self::Memory(most) => format!("≤ {}", bytes(most)),
        }
    }
}

/// Prints the machine and the head of the table.
pub(crate) fn head(machine: &str) {
    println!("{machine}");
    println!("{:<58} {:>10} {:>12} {:>12}  {:<16} kept", "what", "bare", "gpupool", "over", "bar");
}

/// Prints one line of the table; a missed bar is printed as such and hides nothing.
pub(crate) fn print(line: &Line) {
    let over = beside(line.bare, line.ours);
    let (bar, kept) = match line.bar {
        None => (String::new(), ""),
        Some(bar) => (bar.text(), if bar.met(line.bare, line.ours) { "yes" } else { "NO" }),
    };
    println!(
        "{:<58} {:>10} {:>12} {over:>12}  {bar:<16} {kept}",
        line.what,
        figure(line.bare),
        figure(line.ours)
    );
}

/// How ours stands beside the other side: what it takes more, or where it takes far less, how many times less.
fn beside(bare: Figure, ours: Figure) -> String {
    match (bare, ours) {
        (Figure::Nanoseconds(bare), Figure::Nanoseconds(ours)) if bare < 2.0 * ours => duration(ours - bare),
        (Figure::Bytes(bare), Figure::Bytes(ours)) if bare < ours => bytes(ours - bare),
        (Figure::Nanoseconds(bare), Figure::Nanoseconds(ours))
        | (Figure::Bytes(bare), Figure::Bytes(ours)) => {
            format!("{:.1} × less", bare / ours)
        }
        _ => String::new(),
    }
}

/// Says of a measurement that it was not made, and why.
pub(crate) fn skipped(what: &str, why: &str) {
    println!("{what}: not measured: {why}");
}

/// Prints what fits no column: counts by kind.
pub(crate) fn note(text: &str) {
    println!("{text}");
}

fn figure(figure: Figure) -> String {
    match figure {
        Figure::None => "-".to_owned(),
        Figure::Nanoseconds(nanoseconds) => duration(nanoseconds),
        Figure::PerSecond(rate) => format!("{rate:.0}/s"),
        Figure::Bytes(count) => bytes(count),
        Figure::BytesPerSecond(rate) => format!("{:.0} MB/s", rate / 1e6),
    }
}

/// Memory in MiB.
fn bytes(count: f64) -> String {
    format!("{:.1} MiB", count / 1024.0 / 1024.0)
}

/// A duration with three significant digits and its unit.
fn duration(nanoseconds: f64) -> String {
    let (value, unit) = match nanoseconds.abs() {
        size if size < 1e3 => (nanoseconds, "ns"),
        size if size < 1e6 => (nanoseconds / 1e3, "µs"),
        size if size < 1e9 => (nanoseconds / 1e6, "ms"),
        _ => (nanoseconds / 1e9, "s"),
    };
    let digits = if value.abs() < 10.0 { 2 } else { usize::from(value.abs() < 100.0) };
    format!("{value:.digits$} {unit}")
}

/// The value below which `percent` of the samples lie. Sorts them; 0 for none.
pub(crate) fn percentile(samples: &mut [f64], percent: usize) -> f64 {
    samples.sort_by(f64::total_cmp);
    let index = (samples.len() * percent / 100).min(samples.len().saturating_sub(1));
    samples.get(index).copied().unwrap_or(0.0)
}

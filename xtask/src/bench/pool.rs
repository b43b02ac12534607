//! How many events a second the pool decides, by the example that comes with it.

use anyhow::Context;

use super::report::{self, Bar, Figure, Line};
use crate::step;

/// Runs the pool's example, which prints its rate as the last word before "events/s".
pub(crate) fn measure() -> anyhow::Result<()> {
    let arguments =
        ["run", "--release", "--locked", "--quiet", "-p", "gpupool-core", "--example", "pool_events"];
    let output = step::cargo(&arguments)?.output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let rate = text
        .split_whitespace()
        .zip(text.split_whitespace().skip(1))
        .find(|(_, unit)| *unit == "events/s")
        .and_then(|(rate, _)| rate.replace(',', "").parse().ok())
        .with_context(|| format!("the pool's example did not print its rate: {text}"))?;
    report::print(&Line {
        what: "pool events, 1,000 pods, 16 cards".to_owned(),
        bare: Figure::None,
        ours: Figure::PerSecond(rate),
        bar: Some(Bar::Rate(200_000.0)),
    });
    Ok(())
}

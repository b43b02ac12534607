//! How long the scheduler waits for the extender, by the example that comes with it.

use anyhow::Context;

use super::report::{self, Bar, Figure, Line};
use crate::step;

/// Runs the example, which prints `filter p50 … us p99 … us`.
pub(crate) fn measure() -> anyhow::Result<()> {
    let arguments =
        ["run", "--release", "--locked", "--quiet", "-p", "gpupool-control", "--example", "extender_load"];
    let output = step::cargo(&arguments)?.output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let words: Vec<&str> = text.split_whitespace().collect();
    let after = |name: &str| -> anyhow::Result<f64> {
        let place = words.iter().position(|word| *word == name);
        let figure = place.and_then(|place| words.get(place + 1)).and_then(|word| word.parse::<f64>().ok());
        figure.with_context(|| format!("the extender's example did not print its {name}: {text}"))
    };
    for (name, bar) in [("p50", None), ("p99", Some(Bar::Within(5_000_000.0)))] {
        report::print(&Line {
            what: format!("extender filter, 5,000 nodes, 50,000 pods, {name}"),
            bare: Figure::None,
            ours: Figure::Nanoseconds(after(name)? * 1000.0),
            bar,
        });
    }
    Ok(())
}

//! How long the API server waits for admission, by the example that comes with it.

use anyhow::Context;

use super::report::{self, Figure, Line};
use crate::step;

/// Runs the example, which prints `PATH p50 … us p99 … us` for each question that it asks.
pub(crate) fn measure() -> anyhow::Result<()> {
    let arguments =
        ["run", "--release", "--locked", "--quiet", "-p", "gpupool-control", "--example", "admission_load"];
    let output = step::cargo(&arguments)?.output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let after = |name: &str| -> anyhow::Result<f64> {
            let place = words.iter().position(|word| *word == name);
            let figure =
                place.and_then(|place| words.get(place + 1)).and_then(|word| word.parse::<f64>().ok());
            figure.with_context(|| format!("admission's example did not print its {name}: {text}"))
        };
        for name in ["p50", "p99"] {
            report::print(&Line {
                what: format!("admission {}, {name}", words.first().unwrap_or(&"")),
                bare: Figure::None,
                ours: Figure::Nanoseconds(after(name)? * 1000.0),
                bar: None,
            });
        }
    }
    anyhow::ensure!(
        !text.is_empty(),
        "admission's example failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

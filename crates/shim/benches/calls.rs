//! What the shim adds to a call: `calls.c`, bare and hooked in turn, and the difference of the medians.
//!
//! `GPUPOOL_DIST=… cargo bench -p gpupool-shim`. The agent is the tests' own, since no call that is measured here
//! talks to it.

#[path = "../tests/lab/mod.rs"]
mod lab;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use lab::{Lab, finish, shim, simulated};

/// How often bare and hooked take turns.
const TURNS: usize = 5;

type Figures = BTreeMap<String, Vec<f64>>;

fn main() {
    let lab = Lab::new("1");
    lab.agent.change(|limits| limits.memory_bytes = 70 << 30);
    let program = lab.folder.path().join("calls");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/calls.c");
    let status = Command::new("gcc").arg("-O2").arg("-o").arg(&program).arg(source).arg("-ldl").status();
    assert!(status.is_ok_and(|status| status.success()), "the benchmark needs gcc");
    let (mut bare, mut held) = (Figures::new(), Figures::new());
    for _ in 0..TURNS {
        for (hooked, figures) in [(false, &mut bare), (true, &mut held)] {
            let mut command = Command::new(&program);
            simulated(&mut command, lab.folder.path(), &lab.cards);
            command.env("SIMGPU_KERNEL_TIME", "1ns");
            if hooked {
                command.env("LD_PRELOAD", shim()).env("GPUPOOL_SOCKET", lab.agent.socket());
            }
            for line in finish(command).out {
                let words: Vec<_> = line.split(' ').collect();
                figures.entry(words[0].to_owned()).or_default().push(words[1].parse().unwrap_or(f64::NAN));
            }
        }
    }
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{:28} {:>9} {:>9} {:>9}", "nanoseconds a call", "bare", "hooked", "added");
    for (name, times) in &mut bare {
        let Some(hooked) = held.get_mut(name) else { continue };
        let (bare, hooked) = (median(times), median(hooked));
        let _ = writeln!(out, "{name:28} {bare:9.1} {hooked:9.1} {:9.1}", hooked - bare);
    }
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

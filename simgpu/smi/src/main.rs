//! A small `nvidia-smi`: the usual table, list and queries, over whatever `libnvidia-ml.so.1` the loader finds.
//!
//! It reads cards through NVML only, as any tool does, so that library paths and preloads have their say over what it
//! shows. It must not know how a simulated card works, but for the two options that lose a card and bring it back.

mod run;

mod query;
mod table;

mod arguments;
mod clock;
mod reading;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match run::run(&arguments::Arguments::parse()) {
        Ok(code) => code,
        Err(failure) => {
            run::complain(&failure);
            ExitCode::from(failure.exit_code())
        }
    }
}

//! `gpupool inventory`: the GPU stock per use and resource, and what lies idle beside a waiting queue.

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, ValueEnum};
use gpupool_core::one_line::one_word;
use gpupool_core::stock::{self, Inventory};
use serde_json::json;

use crate::stock_source::StockArgs;

/// What the user typed.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    #[command(flatten)]
    stock: StockArgs,
    /// How the inventory is printed
    #[arg(long, value_enum, default_value_t)]
    output: OutputFormat,
}

/// The form of what is printed.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum OutputFormat {
    /// A table, then a line per idle stock
    #[default]
    Text,
    /// One JSON object
    Json,
}

/// Prints the inventory.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let inventory = stock::inventory(&args.stock.stock(|_| {})?);
    let mut out = BufWriter::new(io::stdout().lock());
    let printed = match args.output {
        OutputFormat::Text => print_text(&inventory, &mut out),
        OutputFormat::Json => print_json(&inventory, &mut out),
    };
    printed.and_then(|()| out.flush()).context("cannot print the inventory")?;
    Ok(ExitCode::SUCCESS)
}

const HEADINGS: [&str; 8] =
    ["USE", "RESOURCE", "NODES", "CAPACITY", "ALLOCATABLE", "REQUESTED", "FREE", "WAITING"];

fn print_text(inventory: &Inventory, out: &mut impl Write) -> io::Result<()> {
    let mut table = vec![HEADINGS.map(str::to_owned)];
    table.extend(inventory.rows.iter().map(|row| {
        [
            one_word(&row.node_use, 63),
            one_word(&row.resource, 100),
            row.nodes.to_string(),
            row.capacity.to_string(),
            row.allocatable.to_string(),
            row.requested.to_string(),
            row.free.to_string(),
            row.waiting.to_string(),
        ]
    }));
    let width = |column: usize| table.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: Vec<usize> = (0..HEADINGS.len()).map(width).collect();
    for row in &table {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}"));
        writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    for idle in &inventory.idle {
        let pods = if idle.waiting == 1 { "1 pod waits" } else { &format!("{} pods wait", idle.waiting) };
        writeln!(
            out,
            "IDLE={} {} free on {} nodes while {pods} for {} on {} nodes",
            one_word(&idle.resource, 100),
            idle.free,
            one_word(&idle.node_use, 63),
            one_word(&idle.wanted, 100),
            one_word(&idle.wanted_use, 63),
        )?;
    }
    Ok(())
}

fn print_json(inventory: &Inventory, out: &mut impl Write) -> io::Result<()> {
    let rows = inventory.rows.iter().map(|row| {
        json!({
            "use": row.node_use,
            "resource": row.resource,
            "nodes": row.nodes,
            "capacity": row.capacity.to_string(),
            "allocatable": row.allocatable.to_string(),
            "requested": row.requested.to_string(),
            "free": row.free.to_string(),
            "waiting": row.waiting,
        })
    });
    let idle = inventory.idle.iter().map(|idle| {
        json!({
            "use": idle.node_use,
            "resource": idle.resource,
            "free": idle.free.to_string(),
            "wantedUse": idle.wanted_use,
            "wanted": idle.wanted,
            "waiting": idle.waiting,
        })
    });
    let whole = json!({ "rows": rows.collect::<Vec<_>>(), "idle": idle.collect::<Vec<_>>() });
    serde_json::to_writer_pretty(&mut *out, &whole)?;
    writeln!(out)
}

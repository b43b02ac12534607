//! `gpupool explain pod NAMESPACE/NAME`: why a pod waits, and what would help.

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::Context as _;
use clap::{Parser, Subcommand, ValueEnum};
use gpupool_core::one_line::one_word;
use gpupool_core::stock::{self, Explanation, Outlook, StockPod};
use serde_json::json;

use crate::stock_source::StockArgs;

/// Subject the user typed.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    #[command(subcommand)]
    subject: Subject,
}

#[derive(Debug, Subcommand)]
enum Subject {
    /// Explains why a pod waits.
    Pod(PodArgs),
}

/// Which pod, and from what.
#[derive(Debug, Parser)]
struct PodArgs {
    /// The pod
    #[arg(value_name = "NAMESPACE/NAME")]
    pod: PodName,
    #[command(flatten)]
    stock: StockArgs,
    /// How the explanation is printed
    #[arg(long, value_enum, default_value_t)]
    output: OutputFormat,
}

/// The form of what is printed.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum OutputFormat {
    /// Sentences
    #[default]
    Text,
    /// One JSON object
    Json,
}

#[derive(Clone, Debug)]
struct PodName {
    namespace: String,
    name: String,
}

impl FromStr for PodName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (namespace, name) = text.split_once('/').ok_or("write the pod as NAMESPACE/NAME")?;
        if namespace.is_empty() || name.is_empty() || name.contains('/') {
            return Err("write the pod as NAMESPACE/NAME");
        }
        Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
    }
}

/// How many nodes a line names; the rest is counted.
const NODES_NAMED: usize = 5;

/// Prints the explanation. A pod that is not there is an error.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let Subject::Pod(args) = &args.subject;
    let mut found: Option<StockPod> = None;
    let stock = args.stock.stock(|pod| {
        if pod.name == args.pod.name && pod.namespace == args.pod.namespace {
            found = Some(pod.clone());
        }
    })?;
    let found = found.with_context(|| {
        format!(
            "no pod {} in the {}",
            one_word(&format!("{}/{}", args.pod.namespace, args.pod.name), 520),
            args.stock.source()
        )
    })?;
    let explanation = stock::explain(&stock, &found);
    let mut out = BufWriter::new(io::stdout().lock());
    let printed = match args.output {
        OutputFormat::Text => print_text(&explanation, &mut out),
        OutputFormat::Json => print_json(&explanation, &mut out),
    };
    printed.and_then(|()| out.flush()).context("cannot print the explanation")?;
    Ok(ExitCode::SUCCESS)
}

fn print_text(explanation: &Explanation, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}.", explanation.headline)?;
    for (why, nodes) in &explanation.excluded {
        let shown: Vec<_> = nodes.iter().take(NODES_NAMED).map(|node| one_word(node, 253)).collect();
        let more = match nodes.len().saturating_sub(NODES_NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let count = if nodes.len() == 1 { "1 node".to_owned() } else { format!("{} nodes", nodes.len()) };
        writeln!(out, "  {count} {why}: {}{more}", shown.join(", "))?;
    }
    for why in &explanation.why {
        writeln!(out, "Why: {why}.")?;
    }
    for help in &explanation.helps {
        writeln!(out, "Helps: {help}.")?;
    }
    if let Some(message) = &explanation.scheduler {
        writeln!(out, "Scheduler: {message}")?;
    }
    Ok(())
}

fn print_json(explanation: &Explanation, out: &mut impl Write) -> io::Result<()> {
    let excluded = explanation.excluded.iter().map(|(why, nodes)| json!({ "why": why, "nodes": nodes }));
    let whole = json!({
        "outlook": match explanation.outlook {
            Outlook::Placed => "placed",
            Outlook::Gated => "gated",
            Outlook::Fits => "fits",
            Outlook::Stuck => "stuck",
        },
        "headline": explanation.headline,
        "excluded": excluded.collect::<Vec<_>>(),
        "why": explanation.why,
        "helps": explanation.helps,
        "scheduler": explanation.scheduler,
    });
    serde_json::to_writer_pretty(&mut *out, &whole)?;
    writeln!(out)
}

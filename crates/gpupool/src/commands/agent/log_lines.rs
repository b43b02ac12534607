//! The agent's log: a line for each event on standard error, with the agent's name before it.

use std::fmt;
use std::io;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::{FmtContext, layer};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, filter::Targets, registry};

use crate::log_writer;

/// A line of it.
struct Line;

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        writer.write_str("gpupool agent: ")?;
        context.format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}

/// Begins the log. Only what the agent itself says is in it, not what its libraries have to tell.
pub(super) fn begin() -> io::Result<()> {
    let writer = log_writer::begin("gpupool agent")?;
    let lines = layer().event_format(Line).with_writer(writer).with_ansi(false).log_internal_errors(false);
    let own = Targets::new().with_target("gpupool_agent", Level::INFO);
    registry().with(lines.with_filter(own)).init();
    Ok(())
}

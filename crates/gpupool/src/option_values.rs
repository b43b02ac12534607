//! Values of command-line options that several subcommands take: rules, addresses, spans of time.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use clap::ValueEnum;
use gpupool_core::checker::Rules;

/// `--rules`: how strictly the nodes of a dump or a cluster are judged.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum RulesOption {
    /// One nvidia.com/ resource a node, of exactly the kind that the label names
    #[default]
    Strict,
    /// What healthy nodes under the GPU Operator show: MIG, shared names, companion functions, several models
    Operator,
}

impl From<RulesOption> for Rules {
    fn from(rules: RulesOption) -> Self {
        match rules {
            RulesOption::Strict => Self::Strict,
            RulesOption::Operator => Self::Operator,
        }
    }
}

/// An address to serve on; a port alone is one of the loopback interface.
pub(crate) fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let text = text.strip_prefix(':').unwrap_or(text);
    if let Ok(port) = text.parse() {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    text.parse()
        .map_err(|_| "write a port, such as 9400, or an address and a port, such as 0.0.0.0:9400".to_owned())
}

/// A span of time; a number alone counts minutes.
pub(crate) fn parse_minutes(text: &str) -> Result<Duration, String> {
    parse_duration(text, 60_000)
}

/// A span of time; a number alone counts seconds.
pub(crate) fn parse_seconds(text: &str) -> Result<Duration, String> {
    parse_duration(text, 1000)
}

/// A whole number of milliseconds, seconds, minutes or hours; without a unit, of `plain` milliseconds. Not zero.
fn parse_duration(text: &str, plain: u64) -> Result<Duration, String> {
    let digits = text.len() - text.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let unit = match unit {
        "" => plain,
        "ms" => 1,
        "s" => 1000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        _ => 0,
    };
    let span = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit)).unwrap_or(0);
    if span == 0 {
        return Err("write a whole number over 0, alone or with a unit: 500ms, 90s, 10m, 2h".to_owned());
    }
    Ok(Duration::from_millis(span))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_number_has_the_options_own_unit() {
        assert_eq!(parse_minutes("120"), Ok(Duration::from_hours(2)));
        assert_eq!(parse_seconds("30"), Ok(Duration::from_secs(30)));
        assert_eq!(parse_minutes("5s"), Ok(Duration::from_secs(5)));
        assert_eq!(parse_minutes("250ms"), Ok(Duration::from_millis(250)));
        for wrong in ["", "0", "-1", "1.5", "5 s", "5d", "s", "99999999999999999999"] {
            assert!(parse_minutes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_bare_port_stays_on_this_machine() {
        assert_eq!(parse_address("9400").unwrap().to_string(), "127.0.0.1:9400");
        assert_eq!(parse_address(":9400").unwrap().to_string(), "127.0.0.1:9400");
        assert_eq!(parse_address("0.0.0.0:9400").unwrap().to_string(), "0.0.0.0:9400");
        assert_eq!(parse_address("[::]:9400").unwrap().to_string(), "[::]:9400");
        assert!(parse_address("host").is_err());
    }
}

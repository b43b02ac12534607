//! Queries: which fields there are, and how their values are printed as CSV.

use std::fmt::Write as _;

use crate::clock;
use crate::reading::{CardReading, DriverVersions, ProcessReading};

/// How a query is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutputFormat {
    pub header: bool,
    pub units: bool,
}

/// A query that is not answered, with the sentence for it.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum QueryError {
    #[error("Field \"{0}\" is not a valid field to query.")]
    UnknownField(String),
    #[error("A query needs --format=csv, or csv,noheader or csv,nounits or both.")]
    NoFormat,
    #[error("\"{0}\" is not a valid format: csv, noheader, nounits.")]
    UnknownFormat(String),
}

/// What a card's field is read from.
struct CardFields {
    driver: DriverVersions,
    count: u32,
    reading: CardReading,
}

/// What a process's field is read from.
struct ProcessFields {
    card: CardReading,
    process: ProcessReading,
}

/// A value to print.
enum FieldValue {
    Missing,
    Text(String),
    Measure(String, &'static str),
}

/// One field: the names by which it may be asked for, its unit, and how to read it. The first name heads the column.
struct Field<T> {
    names: &'static [&'static str],
    unit: &'static str,
    read: fn(&T) -> FieldValue,
}

const CARD_FIELDS: &[Field<CardFields>] = &[
    Field { names: &["timestamp"], unit: "", read: |_| timestamp() },
    Field { names: &["driver_version"], unit: "", read: |card| text(&card.driver.version) },
    Field { names: &["count"], unit: "", read: |card| text(card.count.to_string()) },
    Field { names: &["index"], unit: "", read: |card| text(card.reading.index.to_string()) },
    Field { names: &["name", "gpu_name"], unit: "", read: |card| text(&card.reading.name) },
    Field { names: &["serial", "gpu_serial"], unit: "", read: |card| plain(card.reading.serial.as_ref()) },
    Field { names: &["uuid", "gpu_uuid"], unit: "", read: |card| text(&card.reading.uuid) },
    Field { names: &["pci.bus_id", "gpu_bus_id"], unit: "", read: |card| text(&card.reading.bus_id) },
    Field {
        names: &["pci.domain"],
        unit: "",
        read: |card| text(format!("0x{:04X}", card.reading.pci_domain)),
    },
    Field { names: &["pci.bus"], unit: "", read: |card| text(format!("0x{:02X}", card.reading.pci_bus)) },
    Field {
        names: &["pci.device"],
        unit: "",
        read: |card| text(format!("0x{:02X}", card.reading.pci_device)),
    },
    Field {
        names: &["pci.device_id"],
        unit: "",
        read: |card| text(format!("0x{:08X}", card.reading.pci_device_id)),
    },
    Field {
        names: &["pci.sub_device_id"],
        unit: "",
        read: |card| plain(card.reading.pci_subsystem_id.map(|id| format!("0x{id:08X}"))),
    },
    Field {
        names: &["compute_cap"],
        unit: "",
        read: |card| plain(card.reading.compute_capability.map(|(major, minor)| format!("{major}.{minor}"))),
    },
    Field { names: &["memory.total"], unit: "MiB", read: |card| mebibytes(card.reading.memory_total) },
    Field { names: &["memory.reserved"], unit: "MiB", read: |card| mebibytes(card.reading.memory_reserved) },
    Field { names: &["memory.used"], unit: "MiB", read: |card| mebibytes(card.reading.memory_used) },
    Field { names: &["memory.free"], unit: "MiB", read: |card| mebibytes(card.reading.memory_free) },
    Field { names: &["utilization.gpu"], unit: "%", read: |card| measure(card.reading.utilization_gpu, "%") },
    Field {
        names: &["utilization.memory"],
        unit: "%",
        read: |card| measure(card.reading.utilization_memory, "%"),
    },
    Field { names: &["temperature.gpu"], unit: "", read: |card| plain(card.reading.temperature) },
    Field { names: &["power.draw"], unit: "W", read: |card| watts(card.reading.power_draw) },
    Field { names: &["power.limit"], unit: "W", read: |card| watts(card.reading.power_limit) },
    Field { names: &["enforced.power.limit"], unit: "W", read: |card| watts(card.reading.power_limit) },
    Field {
        names: &["pstate"],
        unit: "",
        read: |card| plain(card.reading.performance_state.map(|state| format!("P{state}"))),
    },
    Field { names: &["persistence_mode"], unit: "", read: |card| enabled(card.reading.persistence) },
    Field { names: &["display_active"], unit: "", read: |card| enabled(card.reading.display_active) },
    Field { names: &["compute_mode"], unit: "", read: |card| plain(card.reading.compute_mode) },
    Field { names: &["mig.mode.current"], unit: "", read: |card| enabled(card.reading.mig) },
    Field { names: &["fan.speed"], unit: "%", read: |card| measure(card.reading.fan_speed, "%") },
    Field {
        names: &["ecc.errors.uncorrected.volatile.total"],
        unit: "",
        read: |card| plain(card.reading.ecc_errors),
    },
    Field {
        names: &["clocks.current.sm", "clocks.sm"],
        unit: "MHz",
        read: |card| measure(card.reading.clock_sm, "MHz"),
    },
    Field {
        names: &["clocks.current.memory", "clocks.mem"],
        unit: "MHz",
        read: |card| measure(card.reading.clock_memory, "MHz"),
    },
    Field { names: &["clocks.max.sm"], unit: "MHz", read: |card| measure(card.reading.clock_sm_max, "MHz") },
    Field {
        names: &["clocks.max.memory", "clocks.max.mem"],
        unit: "MHz",
        read: |card| measure(card.reading.clock_memory_max, "MHz"),
    },
];

const PROCESS_FIELDS: &[Field<ProcessFields>] = &[
    Field { names: &["timestamp"], unit: "", read: |_| timestamp() },
    Field { names: &["gpu_name"], unit: "", read: |program| text(&program.card.name) },
    Field { names: &["gpu_bus_id"], unit: "", read: |program| text(&program.card.bus_id) },
    Field { names: &["gpu_serial"], unit: "", read: |program| plain(program.card.serial.as_ref()) },
    Field { names: &["gpu_uuid"], unit: "", read: |program| text(&program.card.uuid) },
    Field { names: &["pid"], unit: "", read: |program| text(program.process.pid.to_string()) },
    Field {
        names: &["process_name", "name"],
        unit: "",
        read: |program| text(program.process.name.as_deref().unwrap_or("[Not Found]")),
    },
    Field {
        names: &["used_gpu_memory", "used_memory"],
        unit: "MiB",
        read: |program| program.process.used_memory.map_or(FieldValue::Missing, mebibytes),
    },
];

impl OutputFormat {
    /// Reads the words of `--format`.
    pub(crate) fn parse(words: &[String]) -> Result<Self, QueryError> {
        let mut format = Self { header: true, units: true };
        let mut csv = false;
        for word in words {
            match word.trim() {
                "csv" => csv = true,
                "noheader" => format.header = false,
                "nounits" => format.units = false,
                other => return Err(QueryError::UnknownFormat(other.to_owned())),
            }
        }
        if csv { Ok(format) } else { Err(QueryError::NoFormat) }
    }
}

/// The fields of every card, a line each; `count` is how many cards there are in all.
pub(crate) fn cards(
    fields: &[String],
    format: OutputFormat,
    driver: &DriverVersions,
    count: u32,
    readings: &[CardReading],
) -> Result<String, QueryError> {
    let rows: Vec<CardFields> = readings
        .iter()
        .map(|reading| CardFields { driver: driver.clone(), count, reading: reading.clone() })
        .collect();
    print(CARD_FIELDS, fields, format, &rows)
}

/// The fields of every process on these cards, a line each.
pub(crate) fn processes(
    fields: &[String],
    format: OutputFormat,
    readings: &[CardReading],
) -> Result<String, QueryError> {
    let rows: Vec<ProcessFields> = readings
        .iter()
        .flat_map(|card| {
            card.processes.iter().map(|one| ProcessFields { card: card.clone(), process: one.clone() })
        })
        .collect();
    print(PROCESS_FIELDS, fields, format, &rows)
}

/// The names of the fields of a card, one a line, aliases on the same line.
pub(crate) fn card_help() -> String {
    help(CARD_FIELDS)
}

/// The names of the fields of a process, one a line, aliases on the same line.
pub(crate) fn process_help() -> String {
    help(PROCESS_FIELDS)
}

fn help<T>(fields: &[Field<T>]) -> String {
    fields.iter().map(|field| field.names.join(" or ") + "\n").collect()
}

fn print<T>(
    known: &[Field<T>],
    wanted: &[String],
    format: OutputFormat,
    rows: &[T],
) -> Result<String, QueryError> {
    let find = |name: &String| {
        let name = name.trim();
        known
            .iter()
            .find(|field| field.names.contains(&name))
            .ok_or_else(|| QueryError::UnknownField(name.to_owned()))
    };
    let columns: Vec<&Field<T>> = wanted.iter().map(find).collect::<Result<_, _>>()?;
    let mut lines = String::new();
    if format.header {
        lines.push_str(&columns.iter().map(|field| field.heading()).collect::<Vec<_>>().join(", "));
        lines.push('\n');
    }
    for row in rows {
        let values: Vec<String> = columns.iter().map(|field| (field.read)(row).print(format.units)).collect();
        // Writing to a String cannot fail.
        let _ = writeln!(lines, "{}", values.join(", "));
    }
    Ok(lines)
}

impl<T> Field<T> {
    fn heading(&self) -> String {
        let name = self.names[0];
        if self.unit.is_empty() { name.to_owned() } else { format!("{name} [{}]", self.unit) }
    }
}

impl FieldValue {
    fn print(self, units: bool) -> String {
        match self {
            Self::Missing => "[N/A]".to_owned(),
            Self::Text(text) => text,
            Self::Measure(number, unit) if units => format!("{number} {unit}"),
            Self::Measure(number, _) => number,
        }
    }
}

fn timestamp() -> FieldValue {
    FieldValue::Text(clock::now(c"%Y/%m/%d %H:%M:%S.000"))
}

fn text(value: impl Into<String>) -> FieldValue {
    FieldValue::Text(value.into())
}

fn plain(value: Option<impl ToString>) -> FieldValue {
    value.map_or(FieldValue::Missing, |value| text(value.to_string()))
}

fn measure(value: Option<u32>, unit: &'static str) -> FieldValue {
    value.map_or(FieldValue::Missing, |value| FieldValue::Measure(value.to_string(), unit))
}

fn mebibytes(bytes: u64) -> FieldValue {
    FieldValue::Measure((bytes >> 20).to_string(), "MiB")
}

fn watts(milliwatts: Option<u32>) -> FieldValue {
    milliwatts.map_or(FieldValue::Missing, |milliwatts| {
        FieldValue::Measure(format!("{}.{:02}", milliwatts / 1000, milliwatts % 1000 / 10), "W")
    })
}

fn enabled(value: Option<bool>) -> FieldValue {
    plain(value.map(|value| if value { "Enabled" } else { "Disabled" }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::sample;

    fn words(line: &str) -> Vec<String> {
        line.split(',').map(str::to_owned).collect()
    }

    fn ask(fields: &str, format: &str) -> Result<String, QueryError> {
        let driver = DriverVersions { version: "615.71.01".to_owned(), cuda_version: "13.5".to_owned() };
        cards(&words(fields), OutputFormat::parse(&words(format))?, &driver, 2, &[sample()])
    }

    #[test]
    fn values_come_with_a_heading_and_units_unless_refused() {
        let fields =
            "index,memory.total,memory.used,utilization.gpu,power.draw,temperature.gpu,fan.speed,pstate";
        assert_eq!(
            ask(fields, "csv").unwrap(),
            "index, memory.total [MiB], memory.used [MiB], utilization.gpu [%], power.draw [W], temperature.gpu, \
             fan.speed [%], pstate\n\
             1, 81920 MiB, 1300 MiB, 37 %, 163.45 W, 44, [N/A], P0\n"
        );
        assert_eq!(
            ask(fields, "csv,noheader,nounits").unwrap(),
            "1, 81920, 1300, 37, 163.45, 44, [N/A], P0\n"
        );
    }

    #[test]
    fn aliases_read_the_same_and_print_the_first_name() {
        assert_eq!(
            ask("gpu_name, clocks.sm,compute_cap,count,driver_version", "csv").unwrap(),
            "name, clocks.current.sm [MHz], compute_cap, count, driver_version\n\
             NVIDIA A100-SXM4-80GB (simulated), 1410 MHz, 8.0, 2, 615.71.01\n"
        );
    }

    #[test]
    fn unknown_fields_and_formats_are_named() {
        assert_eq!(ask("name,colour", "csv"), Err(QueryError::UnknownField("colour".to_owned())));
        assert_eq!(ask("name", "xml"), Err(QueryError::UnknownFormat("xml".to_owned())));
        assert_eq!(ask("name", "noheader"), Err(QueryError::NoFormat));
    }

    #[test]
    fn processes_are_listed_with_what_is_known_of_them() {
        let format = OutputFormat { header: true, units: true };
        assert_eq!(
            processes(&words("pid,process_name,used_memory"), format, &[sample()]).unwrap(),
            "pid, process_name, used_gpu_memory [MiB]\n\
             4321, python3, 1044 MiB\n\
             4190001, [Not Found], [N/A]\n"
        );
    }

    #[test]
    fn no_name_stands_for_two_fields() {
        let mut names: Vec<&str> = CARD_FIELDS.iter().flat_map(|field| field.names).copied().collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}

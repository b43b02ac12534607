//! What a driver answered, as a file, and how two such records differ.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::{Map, Value, json};

/// Version of a record's form.
const FORMAT: u64 = 1;

/// Keys whose values belong to a moment and a machine: other processes take memory, too.
const OF_THE_MOMENT: [&str; 2] = ["device", "left"];

/// The answers of one driver.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Record(Map<String, Value>);

impl Record {
    /// A record that has nothing but the driver's word on itself.
    pub(super) fn new(simulated: bool, driver: Value) -> Self {
        let mut fields = Map::new();
        fields.insert("format".to_owned(), json!(FORMAT));
        fields.insert("simulated".to_owned(), json!(simulated));
        fields.insert("driver".to_owned(), driver);
        Self(fields)
    }

    /// Reads a record.
    #[cfg(test)]
    pub(super) fn read(file: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        Ok(Self(serde_json::from_str(&text).with_context(|| format!("{} is no record", file.display()))?))
    }

    /// Puts a section's answers in.
    pub(super) fn add(&mut self, section: &str, answers: Value) {
        self.0.insert(section.to_owned(), answers);
    }

    /// A section's answers; nothing where it was not asked.
    pub(super) fn section(&self, name: &str) -> &Value {
        self.0.get(name).unwrap_or(&Value::Null)
    }

    /// Whether no section was answered.
    pub(super) fn is_empty(&self) -> bool {
        self.0.len() <= 3
    }

    /// Whether it was recorded on the simulated driver.
    pub(super) fn is_simulated(&self) -> bool {
        self.section("simulated") != &json!(false)
    }

    /// All of the card's memory, in bytes.
    pub(super) fn total_memory(&self) -> u64 {
        self.section("driver")["totalMemory"].as_u64().unwrap_or(0)
    }

    /// Writes it into a folder under the names of card and driver.
    pub(super) fn keep(&self, folder: &Path) -> anyhow::Result<PathBuf> {
        let driver = self.section("driver");
        let name: String =
            format!(
                "{} {}",
                driver["card"].as_str().unwrap_or("card"),
                driver["driver"].as_str().unwrap_or("")
            )
            .chars()
            .map(|letter| {
                if letter.is_ascii_alphanumeric() || letter == '.' {
                    letter.to_ascii_lowercase()
                } else {
                    '-'
                }
            })
            .collect();
        let file = folder.join(name.trim_matches('-').to_owned() + ".json");
        fs::create_dir_all(folder)?;
        fs::write(&file, serde_json::to_string_pretty(&Value::Object(self.0.clone()))? + "\n")
            .with_context(|| format!("cannot write {}", file.display()))?;
        Ok(file)
    }

    /// A few figures for whoever watches.
    pub(super) fn print_summary(&self) {
        let mark = if self.is_simulated() { "simulated: " } else { "" };
        let driver = self.section("driver");
        eprintln!("{mark}{}, driver {}, CUDA {}", driver["card"], driver["driver"], driver["version"]);
        let context = self.section("contexts")["steps"][1]["taken"].clone();
        eprintln!("{mark}a context takes {} bytes (NVML, this process)", context["process"]);
        let granularity = &self.section("bytes")["granularity"];
        eprintln!("{mark}granularity {} bytes", granularity["minimum"]);
        let timing = self.section("timing");
        eprintln!(
            "{mark}launch {} ns, allocation and free {} ns, look-up {} ns, spins {} ns",
            timing["launch ns"], timing["allocation and free ns"], timing["look-up ns"], timing["spin ns"]
        );
    }
}

/// Every place at which two values differ, as `path: left, right`.
pub(super) fn differences(path: &str, left: &Value, right: &Value) -> Vec<String> {
    match (left, right) {
        (Value::Object(one), Value::Object(other)) => {
            let keys = one.keys().chain(other.keys().filter(|key| !one.contains_key(*key)));
            keys.filter(|key| !OF_THE_MOMENT.contains(&key.as_str()))
                .flat_map(|key| differences(&format!("{path}/{key}"), &left[key], &right[key]))
                .collect()
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            let pairs = one.iter().zip(other).enumerate();
            pairs
                .flat_map(|(number, (one, other))| differences(&place(path, number, one), one, other))
                .collect()
        }
        _ if left == right => Vec::new(),
        _ => vec![format!("{path}: {left}, {right}")],
    }
}

/// An item of a list, by its names where it has any.
fn place(path: &str, number: usize, item: &Value) -> String {
    let names: Vec<String> =
        ["family", "step", "size"].iter().filter_map(|key| Some(format!("{}", item.get(key)?))).collect();
    format!("{path}[{number}{}{}]", if names.is_empty() { "" } else { " " }, names.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_named_by_their_place() {
        let left = json!({"a": [{"step": "free", "code": 0, "device": 5}], "b": 1});
        assert_eq!(differences("", &left, &left), Vec::<String>::new());
        let right = json!({"a": [{"step": "free", "code": 2, "device": 9}], "c": 1});
        assert_eq!(
            differences("", &left, &right),
            ["/a[0 \"free\"]/code: 0, 2", "/b: 1, null", "/c: null, 1"]
        );
        assert_eq!(differences("x", &json!([1, 2]), &json!([1])), ["x: [1,2], [1]"]);
    }

    #[test]
    fn a_record_is_kept_under_the_names_of_card_and_driver() {
        let folder = tempfile::tempdir().unwrap();
        let mut record = Record::new(true, json!({"card": "NVIDIA H200 (simulated)", "driver": "615.71.01"}));
        record.add("errors", json!({"nothing": 1}));
        let file = record.keep(folder.path()).unwrap();
        assert_eq!(file.file_name().unwrap(), "nvidia-h200--simulated--615.71.01.json");
        let back = Record::read(&file).unwrap();
        assert_eq!(back, record);
        assert!(back.is_simulated());
    }
}

//! The records of real drivers, and the simulated driver held against them.

use std::path::PathBuf;

use crate::step;

/// Where records of real drivers are kept.
pub(super) fn folder() -> PathBuf {
    step::root().join("simgpu/golden")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::super::kit::{self, Kit};
    use super::super::probe::Probe;
    use super::super::record::{Record, differences};
    use super::*;

    /// What the README says for as long as there is no record.
    const NEVER: &str = "never run on a real driver";

    /// Sections in which the simulated driver must answer as a real one did. Times, NVML's readings and what a context
    /// takes are a card's own.
    const COMPARED: [&str; 4] = ["errors", "bytes", "pools", "graphs"];

    fn records() -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(folder()) else { return Vec::new() };
        let files = entries.map(|entry| entry.unwrap().path());
        let mut records: Vec<PathBuf> =
            files.filter(|path| path.extension().is_some_and(|it| it == "json")).collect();
        records.sort();
        records
    }

    /// A kit with the probe and the simulated driver alone.
    fn kit(folder: &Path) -> Kit {
        let dist = gpupool_dist::given_or_built().unwrap();
        kit::compile(&folder.join("probe")).unwrap();
        std::os::unix::fs::symlink(dist.join("simgpu"), folder.join("simgpu")).unwrap();
        fs::copy(step::root().join("clients/lookups.tsv"), folder.join("lookups.tsv")).unwrap();
        Kit::open(folder).unwrap()
    }

    #[test]
    fn the_simulated_driver_answers_as_recorded_or_the_readme_says_that_nothing_is() {
        let readme = fs::read_to_string(step::root().join("README.md")).unwrap();
        let records = records();
        assert_eq!(
            readme.contains(NEVER),
            records.is_empty(),
            "the README says \"{NEVER}\" exactly as long as {} is empty",
            folder().display()
        );
        let place = tempfile::tempdir().unwrap();
        let kit = kit(place.path());
        for file in &records {
            let golden = Record::read(file).unwrap();
            assert!(!golden.is_simulated(), "{} is of the simulated driver", file.display());
            for section in COMPARED {
                let probe = Probe::bare(&kit, Some(place.path().join("state")));
                let found = differences(section, golden.section(section), &probe.section(section).unwrap());
                assert!(found.is_empty(), "{}: recorded, simulated:\n{}", file.display(), found.join("\n"));
            }
        }
        if records.is_empty() {
            eprintln!("no record of a real driver exists: the simulated one was compared with nothing");
        }
    }

    #[test]
    fn the_probe_gives_the_same_answers_twice_and_another_answer_is_noticed() {
        let place = tempfile::tempdir().unwrap();
        let kit = kit(place.path());
        for section in COMPARED.iter().chain(&["resolver"]) {
            let probe = Probe::bare(&kit, Some(place.path().join("state")));
            let (first, second) = (probe.section(section).unwrap(), probe.section(section).unwrap());
            assert_eq!(differences(section, &first, &second), Vec::<String>::new());
        }
        let probe = Probe::bare(&kit, Some(place.path().join("state")));
        let first = probe.section("errors").unwrap();
        let mut other = first.clone();
        other["free twice"] = serde_json::json!(0);
        assert_eq!(differences("errors", &first, &other).len(), 1, "a free that succeeds twice");
    }
}

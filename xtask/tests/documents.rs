//! The documents are true to the project: what they promise is held by tests that exist, every page is in the index, and no
//! link leads nowhere.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All files below a folder with this ending.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name());
        if name == "target" || name.to_string_lossy().starts_with('.') {
            continue;
        }
        if path.is_dir() {
            found.extend(files(&path, ending));
        } else if path.to_string_lossy().ends_with(ending) {
            found.push(path);
        }
    }
    found
}

/// The folder of a room as the promises name it: `core`, `simgpu/cuda`.
fn folder_of(room: &str) -> PathBuf {
    let of_crate = root().join("crates").join(room);
    if of_crate.is_dir() { of_crate } else { root().join(room) }
}

/// The names of all test functions in a room: what stands below a test attribute, and what `proptest!` and other macros make.
fn tests_in(room: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for file in files(&folder_of(room), ".rs") {
        let is_for_tests = file.to_string_lossy().contains("test");
        let text = read(&file);
        let mut marked = false;
        for line in text.lines().map(str::trim) {
            let declared = line.trim_start_matches("async ").strip_prefix("fn ");
            if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
                marked = true;
            } else if let Some(name) = declared.and_then(|rest| rest.split('(').next()) {
                if marked {
                    names.insert(name.to_owned());
                }
                marked = false;
            } else if is_for_tests && let Some(rest) = line.strip_prefix("scenario ") {
                names.extend(rest.split_whitespace().next().map(str::to_owned));
            }
        }
    }
    names
}

/// What stands between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn every_promise_is_held_by_something_that_exists() {
    let pages = ["docs/promises.md", "SECURITY.md"].map(|page| read(&root().join(page))).concat();
    let benches = read(&root().join("xtask/src/bench.rs"));
    let mut rooms: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let (mut wrong, mut promises) = (Vec::new(), 0);
    let is_head = |line: &str| line.starts_with("| promise") || line.starts_with("| attacker");
    // Who attacks is a table that promises nothing: its rows begin with a word in bold.
    let rows =
        pages.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| **") && !is_head(line));
    for row in rows {
        promises += 1;
        let holds = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        if holds.starts_with("**pending**") {
            continue;
        }
        assert!(holds.contains('`'), "this promise names nothing that holds it, nor is it pending: {row}");
        for name in quoted(holds) {
            let exists = if let Some((room, test)) = name.split_once(": ") {
                rooms.entry(room.to_owned()).or_insert_with(|| tests_in(room)).contains(test)
            } else if let Some(group) = name.strip_prefix("bench ") {
                let variant = group.split('-').map(|word| word[..1].to_uppercase() + &word[1..]);
                benches.contains(&format!("{},", variant.collect::<String>()))
            } else {
                ["clients", "lab", "cargo xtask test"].contains(&name)
            };
            if !exists {
                wrong.push(format!("`{name}` holds \"{row}\" and does not exist"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(promises > 50, "only {promises} promises were read");
}

#[test]
fn every_page_is_in_the_index_of_the_book() {
    let docs = root().join("docs");
    let index = read(&docs.join("SUMMARY.md"));
    for page in files(&docs, ".md") {
        let name = page.strip_prefix(&docs).unwrap().to_string_lossy().into_owned();
        assert!(
            name == "SUMMARY.md" || index.contains(&format!("]({name})")),
            "docs/SUMMARY.md lacks {name}"
        );
    }
}

#[test]
fn no_link_leads_nowhere() {
    let mut links = 0;
    for page in files(root(), ".md") {
        for rest in read(&page).split("](").skip(1) {
            let link = rest.split([')', ' ']).next().unwrap().split('#').next().unwrap();
            if link.is_empty() || link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            links += 1;
            let target = page.parent().unwrap().join(link);
            assert!(target.exists(), "{}: the link to {link} leads nowhere", page.display());
        }
    }
    assert!(links > 20, "only {links} links were read");
}

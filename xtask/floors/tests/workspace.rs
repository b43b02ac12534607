//! The check on this workspace's own crates: an upward import that is planted in any of them is found.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use gpupool_floors::{Floors, check};

/// The folders of the workspace's crates and the root file of each.
fn crates() -> Vec<(PathBuf, PathBuf)> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .output()
        .unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let crates = metadata["packages"].as_array().unwrap().iter().map(|package| {
        let folder = Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap();
        let library = ["src/lib.rs", "src/main.rs"].into_iter().find(|root| folder.join(root).exists());
        (folder.to_owned(), PathBuf::from(library.unwrap()))
    });
    crates.collect()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// A module of the top floor and one of the lowest; nothing where there is one floor only, or none.
fn ends(floors: &Floors) -> Option<(String, String)> {
    let lines = floors.text().lines().filter_map(|line| line.split('#').next());
    let mut floors = lines.filter_map(|line| line.split_whitespace().next());
    let top = floors.next()?.to_owned();
    Some((top, floors.next_back()?.to_owned()))
}

#[test]
fn an_upward_import_planted_in_any_crate_is_found() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let copied = tempfile::tempdir().unwrap();
    // All of them, since one may take a file from another.
    for (folder, _) in crates() {
        let to = copied.path().join(folder.strip_prefix(workspace).unwrap());
        copy(&folder.join("src"), &to.join("src"));
        fs::copy(folder.join("FLOORS"), to.join("FLOORS")).unwrap();
    }
    let mut planted = 0;
    for (folder, root) in crates() {
        let Some((top, bottom)) = ends(&Floors::read(&folder).unwrap()) else { continue };
        let folder = copied.path().join(folder.strip_prefix(workspace).unwrap());
        let file = folder.join(format!("src/{bottom}.rs"));
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, format!("{text}\nuse crate::{top} as planted;\n")).unwrap();
        let breaches = check(&folder, &folder.join(root)).unwrap();
        fs::write(&file, text).unwrap();

        let expected = format!("`{bottom}` uses `{top}`, which stands on a higher floor");
        let sentences: Vec<&str> = breaches.iter().map(|breach| breach.sentence.as_str()).collect();
        assert_eq!(sentences, [expected], "{}", folder.display());
        planted += 1;
    }
    assert!(planted >= 15, "only {planted} crates have floors");
}

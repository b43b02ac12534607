//! The rules, each on a crate of a few lines.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;

use gpupool_floors::{Breach, Error, check};

/// What is wrong in a crate of these files, its FLOORS among them.
fn checked(files: &[(&str, &str)]) -> Result<Vec<Breach>, Error> {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let mut breaches = check(folder.path(), &folder.path().join("src/lib.rs"))?;
    for breach in &mut breaches {
        breach.file = breach.file.strip_prefix(folder.path()).unwrap().to_owned();
    }
    Ok(breaches)
}

/// The breaches of a crate with `upper` above `lower`, whose modules have these texts.
fn two_floors(upper: &str, lower: &str) -> Vec<String> {
    let files = [
        ("FLOORS", "upper\nlower\n"),
        ("src/lib.rs", "mod upper;\n\nmod lower;\n\npub struct Root;\npub use lower::Thing;\n"),
        ("src/upper.rs", upper),
        ("src/lower.rs", lower),
    ];
    checked(&files).unwrap().iter().map(ToString::to_string).collect()
}

const UPWARD: &str = "src/lower.rs:2: `lower` uses `upper`, which stands on a higher floor";

#[test]
fn a_module_may_use_those_of_lower_floors() {
    assert_eq!(two_floors("use crate::lower::Thing;\n", "pub struct Thing;\n"), [""; 0]);
}

#[test]
fn an_upward_path_is_found_wherever_it_stands() {
    let lines = [
        "use crate::upper::Other;",
        "pub(crate) use crate::upper;",
        "use crate::{upper::Other, lower};",
        "use super::upper::{self, Other};",
        "fn call() { crate::upper::call() }",
        "fn call() { some_macro!(a, [crate::upper::Other => 1]) }",
        "fn call() { use crate::upper::Other; }",
        "impl crate::upper::Trait for u8 {}",
        "mod inside { use crate::upper::Other; }",
        "mod inside { use super::super::upper::Other; }",
        "macro_rules! rows { () => { $crate::upper::call() } }",
    ];
    for line in lines {
        assert_eq!(two_floors("", &format!("// a comment\n{line}\n")), [UPWARD], "{line}");
    }
}

#[test]
fn comments_strings_and_tests_may_name_what_they_like() {
    let lines = [
        "// use crate::upper::Other;",
        "/// [`crate::upper`]\nfn documented() {}",
        "const TEXT: &str = \"crate::upper::Other\";",
        "#[cfg(test)]\nmod tests { use crate::upper::Other; }",
        "#[cfg(all(test, not(loom)))]\nuse crate::upper::Other;",
    ];
    for line in lines {
        assert_eq!(two_floors("", &format!("{line}\n")), [""; 0], "{line}");
    }
}

#[test]
fn modules_of_one_floor_do_not_know_each_other() {
    let files = [
        ("FLOORS", "one other\n"),
        ("src/lib.rs", "mod one;\nmod other;\n"),
        ("src/one.rs", ""),
        ("src/other.rs", "use crate::one::Thing;\n"),
    ];
    let expected = "src/other.rs:1: `other` uses `one`, which stands on the same floor";
    assert_eq!(checked(&files).unwrap()[0].to_string(), expected);
}

#[test]
fn what_the_root_declares_is_above_everybody() {
    let expected = "src/lower.rs:1: `lower` uses what the crate's root declares";
    assert_eq!(two_floors("", "use crate::Root;\n"), [expected]);
    // What the root only passes on is where it comes from.
    assert_eq!(two_floors("use crate::Thing;\n", "pub struct Thing;\n"), [""; 0]);
    assert_eq!(two_floors("", "fn call() { crate::exported_macro!() }\n"), [""; 0]);
}

#[test]
fn a_name_that_is_passed_on_leads_to_where_it_comes_from() {
    let files = [
        ("FLOORS", "room\n"),
        ("src/lib.rs", "mod room;\n"),
        (
            "src/room.rs",
            "mod one;\nmod other;\npub(crate) use one::Thing;\nuse self::other::Part as Piece;\n",
        ),
        ("src/room/one.rs", "use super::Piece;\n"),
        ("src/room/other.rs", "use super::Thing;\n"),
    ];
    let found: Vec<String> = checked(&files).unwrap().iter().map(ToString::to_string).collect();
    let expected = [
        "src/room/one.rs:1: in `room`, `one` uses `other`, which uses `one`: a circle",
        "src/room/other.rs:1: in `room`, `other` uses `one`, which uses `other`: a circle",
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_folder_is_one_room_whose_face_its_children_may_use() {
    let files = [
        ("FLOORS", "room\n"),
        ("src/lib.rs", "mod room;\n"),
        ("src/room.rs", "mod one;\nmod other;\npub(crate) struct Face;\nfn call() { one::call() }\n"),
        ("src/room/one.rs", "use super::Face;\nuse super::other::Part;\npub(crate) fn call() {}\n"),
        ("src/room/other.rs", "use crate::room::Face;\npub(crate) struct Part;\n"),
    ];
    assert_eq!(checked(&files).unwrap(), []);
}

#[test]
fn every_module_has_a_floor_and_every_name_a_module() {
    let files = [
        ("FLOORS", "known gone\n"),
        ("src/lib.rs", "mod known;\nmod unknown;\n"),
        ("src/known.rs", ""),
        ("src/unknown.rs", ""),
    ];
    let found: Vec<String> = checked(&files).unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(found, ["FLOORS: module `unknown` stands on no floor", "FLOORS: there is no module `gone`"]);
}

#[test]
fn the_root_lists_its_modules_from_the_top_down() {
    let files = [
        ("FLOORS", "upper\nlower\n"),
        ("src/lib.rs", "mod lower;\nmod upper;\n"),
        ("src/upper.rs", ""),
        ("src/lower.rs", ""),
    ];
    let expected = "src/lib.rs: `upper` is declared below `lower` and stands above it";
    assert_eq!(checked(&files).unwrap()[0].to_string(), expected);
}

#[test]
fn a_module_with_children_lies_beside_its_folder() {
    let files = [("FLOORS", "room\n"), ("src/lib.rs", "mod room;\n"), ("src/room/mod.rs", "")];
    let expected = "src/room/mod.rs: write this module as `room.rs` beside its folder";
    assert_eq!(checked(&files).unwrap()[0].to_string(), expected);
}

#[test]
fn what_cannot_be_read_says_which_file_and_why() {
    let message = |files: &[(&str, &str)]| checked(files).unwrap_err().to_string();
    let root = ("src/lib.rs", "mod one;\n");
    assert!(message(&[root, ("src/one.rs", "")]).contains("declare the crate's floors there"));
    let floors = ("FLOORS", "one\n");
    assert!(message(&[floors, root]).ends_with("lib.rs: module `one` has no file"));
    assert!(message(&[floors, root, ("src/one.rs", "\nfn {")]).contains("one.rs:2: "));
    let twice = ("FLOORS", "one\none # again\n");
    assert!(
        message(&[twice, root, ("src/one.rs", "")]).ends_with("FLOORS:2: `one` stands on a floor already")
    );
}

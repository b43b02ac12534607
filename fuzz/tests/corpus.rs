//! Every input of the corpus again, on any toolchain and without the engine.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::path::Path;

use gpupool_fuzz::TARGETS;

/// An input is small, and there are few: they live in the repository.
const LONGEST_INPUT: usize = 4096;
const MOST_INPUTS: usize = 40;

fn corpus() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/corpus"))
}

#[test]
fn every_input_of_the_corpus_is_answered_rightly() {
    for (name, target) in TARGETS {
        let mut inputs: Vec<_> =
            fs::read_dir(corpus().join(name)).unwrap().map(|entry| entry.unwrap().path()).collect();
        inputs.sort();
        assert!((1..=MOST_INPUTS).contains(&inputs.len()), "{name} has {} inputs", inputs.len());
        for input in inputs {
            // What a panic doesn't say: which input it was.
            println!("{}", input.display());
            let bytes = fs::read(&input).unwrap();
            assert!(bytes.len() <= LONGEST_INPUT, "{} is too long", input.display());
            target(&bytes);
        }
    }
}

#[test]
fn every_folder_and_program_is_a_target() {
    let mut names: Vec<_> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    names.sort();
    for (folder, ending) in [(corpus().to_owned(), ""), (corpus().with_file_name("src/bin"), ".rs")] {
        let files =
            fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
        let mut found: Vec<_> = files.map(|file| file.strip_suffix(ending).unwrap().to_owned()).collect();
        found.sort();
        assert_eq!(found, names);
    }
}

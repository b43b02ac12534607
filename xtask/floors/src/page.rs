//! The part of ARCHITECTURE.md that shows every crate's floors.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use gpupool_floors::Floors;

/// The lines between which the floors stand.
const BEGIN: &str =
    "<!-- floors: written by `cargo run -p gpupool-floors -- --write` from each crate's FLOORS -->";
const END: &str = "<!-- end of the floors -->";

/// Why the page cannot be checked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PageError {
    #[error("cannot read or write {}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("{}: the lines `{BEGIN}` and `{END}` are missing", .0.display())]
    NoPlace(PathBuf),
}

/// Whether the page shows these floors as they are: the number of breaches, 0 or 1. `writes` puts them there.
pub(crate) fn check(
    page: &Path,
    declared: &[(String, PathBuf, Floors)],
    writes: bool,
) -> Result<usize, PageError> {
    let failed = |source| PageError::File { path: page.to_owned(), source };
    let text = std::fs::read_to_string(page).map_err(failed)?;
    let no_place = || PageError::NoPlace(page.to_owned());
    let (before, rest) = text.split_once(BEGIN).ok_or_else(no_place)?;
    let (shown, after) = rest.split_once(END).ok_or_else(no_place)?;
    let due = shown_floors(declared);
    if shown == due {
        return Ok(0);
    }
    if writes {
        std::fs::write(page, format!("{before}{BEGIN}{due}{END}{after}")).map_err(failed)?;
        return Ok(0);
    }
    eprintln!("ARCHITECTURE.md shows other floors than the crates declare: {BEGIN}");
    Ok(1)
}

fn shown_floors(declared: &[(String, PathBuf, Floors)]) -> String {
    let mut text = String::from("\n");
    for (name, folder, floors) in declared {
        let lines: Vec<&str> =
            floors.text().lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()).collect();
        if !lines.is_empty() {
            // Writing to a string cannot fail.
            let _ =
                write!(text, "\n`{name}` ({}):\n\n```text\n{}\n```\n", folder.display(), lines.join("\n"));
        }
    }
    text.push('\n');
    text
}

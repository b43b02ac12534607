//! Exports every name of the driver API: what `src` does not implement becomes a function that answers
//! `CUDA_ERROR_NOT_SUPPORTED`. Also writes the resolver's table, the error texts, and the library's soname.

use std::{
    collections::BTreeSet,
    env, fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

/// One line of `entry_points.tsv`.
struct EntryPoint<'a> {
    symbol: &'a str,
    base: &'a str,
    version: &'a str,
    flavour: &'a str,
}

fn main() -> io::Result<()> {
    for input in ["src", "entry_points.tsv", "error_codes.tsv"] {
        println!("cargo::rerun-if-changed={input}");
    }
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // Threads of ours may still run when a program closes the library.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // Calls between our own functions must not be caught by whoever interposes them.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");

    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or_else(|| io::Error::other("OUT_DIR is not set"))?);
    let table = fs::read_to_string("entry_points.tsv")?;
    let entry_points: Vec<_> = rows(&table).filter_map(|row| entry_point(&row)).collect();
    let implemented = implemented(Path::new("src"))?;
    write_entry_points(&out.join("entry_points.rs"), &entry_points, &implemented)?;
    write_error_codes(&out.join("error_codes.rs"), &fs::read_to_string("error_codes.tsv")?)
}

/// The lines of a table, without comments and heading.
fn rows(table: &str) -> impl Iterator<Item = Vec<&str>> {
    table.lines().filter(|line| !line.starts_with('#')).skip(1).map(|line| line.split('\t').collect())
}

fn entry_point<'a>(row: &[&'a str]) -> Option<EntryPoint<'a>> {
    let [symbol, base, version, flavour] = *row else { return None };
    Some(EntryPoint { symbol, base, version, flavour })
}

/// The names that `entry!` and `early_entry!` define: each stands at the start of its line, before its arguments.
fn implemented(directory: &Path) -> io::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for file in fs::read_dir(directory)? {
        let path = file?.path();
        if path.is_dir() {
            names.append(&mut implemented(&path)?);
            continue;
        }
        for line in fs::read_to_string(&path)?.lines() {
            if let Some((name, _)) = line.trim_start().split_once('(')
                && name.starts_with("cu")
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            {
                names.insert(name.to_owned());
            }
        }
    }
    Ok(names)
}

fn write_entry_points(
    path: &Path,
    entry_points: &[EntryPoint<'_>],
    implemented: &BTreeSet<String>,
) -> io::Result<()> {
    let mut out = io::BufWriter::new(fs::File::create(path)?);
    for EntryPoint { symbol, .. } in entry_points {
        if !implemented.contains(*symbol) {
            writeln!(out, "unsupported! {{ {symbol} }}")?;
        }
    }
    writeln!(out, "unsafe extern \"C\" {{")?;
    for EntryPoint { symbol, .. } in entry_points {
        if implemented.contains(*symbol) {
            writeln!(out, "    safe fn {symbol}() -> i32;")?;
        }
    }
    writeln!(out, "}}")?;
    writeln!(out, "/// Sorted by base name, then by version.")?;
    writeln!(out, "pub(crate) static ENTRY_POINTS: [EntryPoint; {}] = [", entry_points.len())?;
    let mut sorted: Vec<_> = entry_points.iter().collect();
    sorted.sort_by_key(|point| (point.base, point.version.parse::<u32>().unwrap_or_default(), point.flavour));
    for EntryPoint { symbol, base, version, flavour } in sorted {
        let per_thread = *flavour != "plain";
        writeln!(
            out,
            "    EntryPoint {{ base: \"{base}\", version: {version}, per_thread: {per_thread}, code: {symbol} }},"
        )?;
    }
    writeln!(out, "];")?;
    out.flush()
}

fn write_error_codes(path: &Path, table: &str) -> io::Result<()> {
    let mut out = io::BufWriter::new(fs::File::create(path)?);
    writeln!(out, "/// Sorted by code: code, name, text.")?;
    writeln!(out, "pub(crate) static ERROR_CODES: &[(i32, &CStr, &CStr)] = &[")?;
    for row in rows(table) {
        if let [code, name, text] = row[..] {
            writeln!(out, "    ({code}, c{name:?}, c{text:?}),")?;
        }
    }
    writeln!(out, "];")?;
    out.flush()
}

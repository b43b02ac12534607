//! Builds the proving ground's programs once and keeps them in a cache outside the target folder.
//!
//! One folder per tool, named by its version and by a digest of everything it is built from. It appears by a
//! rename, so a folder that exists is complete. Builders that come at the same time wait for the first.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use ring::digest;

use crate::recipe::{Recipe, Tool};
use crate::{Error, tied};

/// The folder with the tool's programs, built first if it is not there yet.
///
/// Building needs the Go tool and the network, takes minutes and says so on standard error.
pub fn folder_of(tool: Tool) -> Result<PathBuf, Error> {
    let recipe = tool.recipe();
    let cache = cache()?;
    let folder = cache.join(folder_name(recipe));
    if folder.is_dir() {
        return Ok(folder);
    }
    fs::create_dir_all(&cache).map_err(Error::file("create", &cache))?;
    let _lock = builders_lock(recipe, &cache)?;
    if !folder.is_dir() {
        build(recipe, &cache, &folder)?;
    }
    Ok(folder)
}

/// Where the built programs are kept: `$XDG_CACHE_HOME/gpupool/testbed`, or below `~/.cache`.
pub fn cache() -> Result<PathBuf, Error> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    Ok(base.ok_or(Error::NoCache)?.join("gpupool/testbed"))
}

/// Tool, version and a digest of all that goes into the build.
fn folder_name(recipe: &Recipe) -> String {
    let mut digest = digest::Context::new(&digest::SHA256);
    let mut add = |text: &str| {
        digest.update(&text.len().to_le_bytes());
        digest.update(text.as_bytes());
    };
    recipe.module.iter().for_each(|(name, text)| {
        add(name);
        add(text);
    });
    recipe.packages.iter().chain(recipe.settings).for_each(|text| add(text));
    let digest = digest.finish();
    let short: String = digest.as_ref().iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}-{short}", recipe.name, recipe.version)
}

/// Held by whoever builds this tool; waits for its turn, and says so when it has to.
fn builders_lock(recipe: &Recipe, cache: &Path) -> Result<File, Error> {
    let path = cache.join(format!("{}.lock", recipe.name));
    let lock = File::create(&path).map_err(Error::file("create", &path))?;
    if lock.try_lock().is_err() {
        tell(&format!("waiting for another process that is building {}", recipe.what));
        lock.lock().map_err(Error::file("lock", &path))?;
    }
    Ok(lock)
}

/// Builds into a folder beside the final one, then renames it. The caller holds the lock.
fn build(recipe: &Recipe, cache: &Path, folder: &Path) -> Result<(), Error> {
    let started = Instant::now();
    tell(&format!(
        "building {} into {}: once, about {} on two cores the first time (Go modules are downloaded)",
        recipe.what,
        folder.display(),
        recipe.usual_time
    ));
    // Left behind by a builder that was killed; nobody else uses it while we hold the lock.
    let workshop = cache.join(format!(".building-{}", recipe.name));
    match fs::remove_dir_all(&workshop) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(Error::file("remove", &workshop)(error));
        }
        _ => fs::create_dir_all(workshop.join("bin")).map_err(Error::file("create", &workshop))?,
    }
    for (name, text) in recipe.module {
        let path = workshop.join(name);
        fs::write(&path, text).map_err(Error::file("write", &path))?;
    }
    run_go(recipe, &workshop)?;
    let built = workshop.join("bin");
    for program in recipe.programs {
        let path = built.join(program);
        fs::metadata(&path).map_err(Error::file("find the built program", &path))?;
    }
    for (name, program) in recipe.names {
        let link = built.join(name);
        std::os::unix::fs::symlink(program, &link).map_err(Error::file("create", &link))?;
    }
    fs::rename(&built, folder).map_err(Error::file("put the built programs in", folder))?;
    // What is left is a few source files and the log; the next build removes them if this cannot.
    let _ = fs::remove_dir_all(&workshop);
    tell(&format!("built {} in {} seconds", recipe.what, started.elapsed().as_secs()));
    Ok(())
}

/// Runs the Go tool with its output in a log beside the sources.
fn run_go(recipe: &Recipe, workshop: &Path) -> Result<(), Error> {
    let log = workshop.join("log");
    let output = File::create(&log).map_err(Error::file("create", &log))?;
    let same = output.try_clone().map_err(Error::file("open", &log))?;
    let mut linker = String::from("-s -w");
    for setting in recipe.settings {
        linker.push_str(" -X ");
        linker.push_str(setting);
    }
    let bin = workshop.join("bin");
    let mut go = Command::new("go");
    if recipe.module.is_empty() {
        go.arg("install");
    } else {
        go.arg("build").arg("-o").arg(bin.join(recipe.programs[0]));
    }
    go.args(["-trimpath", "-ldflags", &linker])
        .args(recipe.packages)
        .current_dir(workshop)
        .env("CGO_ENABLED", "0")
        // The caller's own Go settings must not reach into what is built.
        .env("GOFLAGS", "-buildvcs=false")
        .env("GOWORK", "off")
        .env("GO111MODULE", "on")
        .env("GOBIN", &bin)
        .env_remove("GOOS")
        .env_remove("GOARCH")
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(same);
    let status = match tied::spawn(go) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Error::NoGo { what: recipe.what });
        }
        spawned => spawned.and_then(|mut child| child.wait()),
    };
    let status = status.map_err(|source| Error::Spawn { name: "go".to_owned(), source })?;
    if status.success() {
        return Ok(());
    }
    Err(Error::Build { what: recipe.what, status, end: last_lines(&log), log })
}

/// The last ten lines of a log, as far as it can be read.
pub(crate) fn last_lines(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}

/// A line on standard error itself: the test harness keeps what the print macros write until a test has failed,
/// and somebody who waits for minutes wants to know why now.
fn tell(line: &str) {
    // With standard error gone there is nobody to tell.
    let _ = writeln!(io::stderr(), "testbed: {line}");
}

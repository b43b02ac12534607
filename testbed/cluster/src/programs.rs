//! Builds the proving ground's programs once and keeps them in a cache outside the target folder.
//!
//! One folder per tool, named by its version and by a digest of everything it is built from. It appears by a
//! rename, so a folder that exists is complete. Builders that come at the same time wait for the first.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

use ring::digest;

use crate::recipe::{Recipe, Tool};
use crate::{Error, tied};

/// The folder with the tool's programs, built first if it is not there yet.
///
/// Building needs the Go tool and the network, takes minutes and says so on standard error.
pub fn folder_of(tool: Tool) -> Result<PathBuf, Error> {
    Builder { cache: cache()?, go: "go".into() }.folder_of(tool.recipe())
}

/// Where the built programs are kept: `$XDG_CACHE_HOME/gpupool/testbed`, or below `~/.cache`.
pub fn cache() -> Result<PathBuf, Error> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    Ok(base.ok_or(Error::NoCache)?.join("gpupool/testbed"))
}

/// The last ten lines of a log, as far as it can be read.
pub(crate) fn last_lines(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}

/// Builds into a cache with a Go tool.
struct Builder {
    cache: PathBuf,
    go: OsString,
}

impl Builder {
    fn folder_of(&self, recipe: &Recipe) -> Result<PathBuf, Error> {
        let folder = self.cache.join(folder_name(recipe));
        if folder.is_dir() {
            return Ok(folder);
        }
        fs::create_dir_all(&self.cache).map_err(Error::file("create", &self.cache))?;
        let _lock = self.lock(recipe)?;
        if !folder.is_dir() {
            self.build(recipe, &folder)?;
        }
        Ok(folder)
    }

    /// Held by whoever builds this tool; waits for its turn, and says so when it has to.
    fn lock(&self, recipe: &Recipe) -> Result<File, Error> {
        let path = self.cache.join(format!("{}.lock", recipe.name));
        let lock = File::create(&path).map_err(Error::file("create", &path))?;
        if lock.try_lock().is_err() {
            tell(&format!("waiting for another process that is building {}", recipe.what));
            lock.lock().map_err(Error::file("lock", &path))?;
        }
        Ok(lock)
    }

    /// Builds into a folder beside the final one, then renames it. The caller holds the lock.
    fn build(&self, recipe: &Recipe, folder: &Path) -> Result<(), Error> {
        let started = Instant::now();
        tell(&format!(
            "building {} into {}: once, about {} on two cores the first time (Go modules are downloaded)",
            recipe.what,
            folder.display(),
            recipe.usual_time
        ));
        let workshop = self.cache.join(format!(".building-{}", recipe.name));
        lay_out(recipe, &workshop)?;
        self.run_go(recipe, &workshop)?;
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
    fn run_go(&self, recipe: &Recipe, workshop: &Path) -> Result<(), Error> {
        let log = workshop.join("log");
        let output = File::create(&log).map_err(Error::file("create", &log))?;
        let same = output.try_clone().map_err(Error::file("open", &log))?;
        let mut go = self.go_command(recipe, workshop);
        go.stdin(Stdio::null()).stdout(output).stderr(same);
        let run = || -> io::Result<ExitStatus> { tied::spawn(go)?.wait() };
        match run() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(Error::Build { what: recipe.what, status, end: last_lines(&log), log }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Error::NoGo { what: recipe.what }),
            Err(source) => Err(Error::Spawn { name: "go".to_owned(), source }),
        }
    }

    fn go_command(&self, recipe: &Recipe, workshop: &Path) -> Command {
        let mut linker = String::from("-s -w");
        for setting in recipe.settings {
            linker.push_str(" -X ");
            linker.push_str(setting);
        }
        let bin = workshop.join("bin");
        let mut go = Command::new(&self.go);
        if recipe.module.is_empty() {
            go.arg("install");
        } else {
            go.arg("build").arg("-o").arg(bin.join(recipe.name));
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
            .env_remove("GOARCH");
        go
    }
}

/// Tool, version and a digest of all that goes into the build.
fn folder_name(recipe: &Recipe) -> String {
    let mut digest = digest::Context::new(&digest::SHA256);
    let mut add = |text: &str| {
        digest.update(&text.len().to_le_bytes());
        digest.update(text.as_bytes());
    };
    for (name, text) in recipe.module {
        add(name);
        add(text);
    }
    recipe.packages.iter().chain(recipe.settings).for_each(|text| add(text));
    let digest = digest.finish();
    let short = digest.as_ref().first_chunk().map_or(0, |first| u32::from_be_bytes(*first));
    format!("{}-{}-{short:08x}", recipe.name, recipe.version)
}

/// An empty folder with the sources, if there are any. What a builder that was killed left there is removed.
fn lay_out(recipe: &Recipe, workshop: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(workshop) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(Error::file("remove", workshop)(error));
        }
        _ => fs::create_dir_all(workshop.join("bin")).map_err(Error::file("create", workshop))?,
    }
    for (name, text) in recipe.module {
        let path = workshop.join(name);
        fs::write(&path, text).map_err(Error::file("write", &path))?;
    }
    Ok(())
}

/// A line on standard error itself: the test harness keeps what the print macros write until a test has failed,
/// and somebody who waits for minutes wants to know why now.
fn tell(line: &str) {
    // With standard error gone there is nobody to tell.
    let _ = writeln!(io::stderr(), "testbed: {line}");
}

/// The real Go tool takes minutes; what is tested here is when it is called and what becomes of the outcome.
#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn builder(cache: &Path, go: &str) -> Builder {
        let go = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/go").join(go);
        Builder { cache: cache.join("cache"), go: go.into() }
    }

    #[test]
    fn builders_that_come_at_the_same_time_build_once() {
        let folder = tempfile::tempdir().unwrap();
        let builder = builder(folder.path(), "gated");
        let calls = builder.cache.join("calls");
        let built = std::thread::scope(|scope| {
            let builders: Vec<_> =
                (0..4).map(|_| scope.spawn(|| builder.folder_of(Tool::Kwok.recipe()))).collect();
            let started = Instant::now();
            while !calls.exists() {
                assert!(started.elapsed() < Duration::from_mins(3), "the Go tool was never called");
                std::thread::sleep(Duration::from_millis(5));
            }
            fs::write(builder.cache.join("gate"), "open").unwrap();
            builders.into_iter().map(|it| it.join().unwrap().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(fs::read_to_string(calls).unwrap().lines().count(), 1);
        assert!(built[0].join("kwok").is_file());
        assert!(built.iter().all(|it| *it == built[0]));
    }

    #[test]
    fn a_failed_build_says_what_go_said_and_is_tried_again() {
        let folder = tempfile::tempdir().unwrap();
        let failing = builder(folder.path(), "failing");
        for _ in 0..2 {
            let error = failing.folder_of(Tool::Kube.recipe()).unwrap_err().to_string();
            assert!(error.contains("building etcd 3.6.13 and Kubernetes 1.36.3 failed"), "{error}");
            assert!(error.contains("no space left on device"), "{error}");
        }
        assert!(!failing.cache.join(folder_name(Tool::Kube.recipe())).exists());
    }

    #[test]
    fn without_go_the_error_says_what_to_install() {
        let folder = tempfile::tempdir().unwrap();
        let error = builder(folder.path(), "absent").folder_of(Tool::Kwok.recipe()).unwrap_err().to_string();
        assert!(error.contains("install Go 1.26 or newer"), "{error}");
    }

    #[test]
    fn what_is_built_differently_lies_in_another_folder() {
        let kwok = Tool::Kwok.recipe();
        let other = Recipe { settings: &["main.x=1"], ..*kwok };
        assert_ne!(folder_name(kwok), folder_name(&other));
        assert_eq!(folder_name(kwok), folder_name(&Recipe { ..*kwok }));
    }
}

//! In a root with an old glibc, whose `dlsym` lives in a library of its own that many programs never load.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail as tests do")]

mod lab;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use lab::{Lab, finish, shim};
use rustix::fs::{FlockOperation, flock};

/// The oldest release of Debian that package sources still serve; its glibc is 2.31. What the library asks of glibc
/// is older yet, which the tests of the built library read in it.
const RELEASE: &str = "bullseye";
const GLIBC: &str = "2.31";

/// Lays the packages of that release out under the folder `$1`, by name, from wherever this machine's come.
const FETCH: &str = r#"
site=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -v security | head -n 1)
[ -n "$site" ] || { echo "apt has no package source"; exit 1; }
rm -rf "$1"; mkdir -p "$1/apt/lists/partial" "$1/apt/cache/archives/partial" "$1/packages"; cd "$1/packages"
: > "$1/apt/status"
keys=/usr/share/keyrings/debian-archive-keyring.gpg
echo "deb [signed-by=$keys] $site $2 main" > "$1/apt/sources.list"
own="-o Dir::Etc::sourcelist=$1/apt/sources.list -o Dir::Etc::sourceparts=- -o Dir::State::lists=$1/apt/lists
    -o Dir::Cache=$1/apt/cache -o Dir::State::status=$1/apt/status -o Acquire::Languages=none
    -o APT::Sandbox::User=root -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false"
apt-get $own update -q
apt-get $own download -q libc6 libc6-dev linux-libc-dev libcrypt1 libcrypt-dev dash coreutils
for package in *.deb; do dpkg-deb -x "$package" "$1/root"; done
# An absolute link, which would lead out of the root.
ln -sf ../lib/x86_64-linux-gnu/ld-linux-x86-64.so.2 "$1/root/lib64/ld-linux-x86-64.so.2"
rm -rf "$1/apt" "$1/packages"
"#;

/// The root, made once for all.
fn root() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    let folder = cache.expect("XDG_CACHE_HOME or HOME is set").join("gpupool").join(format!("glibc-{GLIBC}"));
    fs::create_dir_all(folder.parent().unwrap()).unwrap();
    let lock = File::create(format!("{}.lock", folder.display())).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let whole = folder.join("whole");
    if !whole.exists() {
        let mut fetch = Command::new("/bin/sh");
        let output = fetch.args(["-ec", FETCH, "fetch"]).arg(&folder).arg(RELEASE).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        assert!(
            output.status.success(),
            "packages of Debian {RELEASE} cannot be had, so nothing can be said about an old glibc: {}",
            String::from_utf8_lossy(&said)
        );
        File::create(whole).unwrap();
    }
    folder.join("root")
}

/// Runs a program by the old root's own loader.
fn in_root(program: &Path, more_libraries: &Path) -> Command {
    let libraries = root().join("lib/x86_64-linux-gnu");
    let mut command = Command::new(libraries.join(format!("ld-{GLIBC}.so")));
    command.arg("--library-path").arg(format!("{}:{}", libraries.display(), more_libraries.display()));
    command.arg(program).env_remove("LD_PRELOAD").env_remove("GPUPOOL_SOCKET");
    command
}

/// Compiles one of the C programs for the old root.
fn compile(folder: &Path, name: &str, to: &str, arguments: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/programs/{name}.c"));
    let to = folder.join(to);
    let mut compiler = Command::new("gcc");
    compiler.arg(format!("--sysroot={}", root().display()));
    // Debian's compiler looks in its own folders first, whatever the root; and the root's links lead out of it.
    let libraries = root().join("usr/lib/x86_64-linux-gnu").display().to_string();
    let loaded = root().join("lib/x86_64-linux-gnu").display().to_string();
    compiler.args([format!("-B{libraries}"), format!("-L{libraries}"), format!("-L{loaded}")]);
    compiler.args(["-O1", "-Wall", "-Werror", "-o"]).arg(&to).arg(source).args(arguments);
    let output = compiler.arg("-l:libdl.so.2").output().unwrap();
    assert!(output.status.success(), "{name}.c: {}", String::from_utf8_lossy(&output.stderr));
    to
}

#[test]
fn programs_that_never_load_libdl_run_as_before() {
    let folder = tempfile::tempdir().unwrap();
    let root = root();
    for (program, arguments) in [
        ("bin/true", &[][..]),
        ("bin/echo", &["a", "word"]),
        ("bin/dash", &["-c", "echo from the shell; exec echo from a program"]),
        ("bin/cat", &["/etc/hostname"]),
    ] {
        let run = |preload: bool| {
            let mut command = in_root(&root.join(program), folder.path());
            command.args(arguments);
            if preload {
                command.env("LD_PRELOAD", shim());
            }
            let output = command.output().unwrap();
            (output.status, output.stdout, String::from_utf8_lossy(&output.stderr).into_owned())
        };
        assert!(run(false).0.success(), "{program}");
        assert_eq!(run(true), run(false), "{program}");
    }
}

/// The client in the old root under the shim, with these libraries preloaded in this order.
fn client(lab: &Lab, preloads: &[&Path]) -> lab::Said {
    let folder = lab.folder.path();
    compile(folder, "old_driver", "libcuda.so.1", &["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]);
    let mut command = in_root(&compile(folder, "old_client", "old_client", &[]), folder);
    let preloads: Vec<_> = preloads.iter().map(|library| library.display().to_string()).collect();
    command.env("LD_PRELOAD", preloads.join(":")).env("GPUPOOL_SOCKET", lab.agent.socket());
    finish(command)
}

fn expected(limit: u64) -> Vec<String> {
    let left = limit - 1024 - (64 << 20);
    [
        format!("glibc {GLIBC}"),
        "init=0".to_owned(),
        "count=0 1".to_owned(),
        "retain=0".to_owned(),
        "get=0".to_owned(),
        "alloc=0".to_owned(),
        "too much=2".to_owned(),
        format!("info=0 {left} {limit}"),
        "next puts=1".to_owned(),
        "default puts=1".to_owned(),
        "version=1".to_owned(),
        "nothing=0".to_owned(),
    ]
    .into()
}

#[test]
fn a_gpu_program_is_held_to_its_limit() {
    let lab = Lab::new("1xSim-4GB");
    let said = client(&lab, &[&shim()]);
    assert_eq!(said.out, expected(lab.agent.limits().memory_bytes), "{}", said.err);
}

#[test]
fn a_second_preload_that_looks_for_the_next_function_keeps_working() {
    for shim_first in [true, false] {
        let lab = Lab::new("1xSim-4GB");
        let neighbour = compile(lab.folder.path(), "neighbour", "neighbour.so", &["-shared", "-fPIC"]);
        let both = [shim(), neighbour];
        let order: [&Path; 2] = if shim_first { [&both[0], &both[1]] } else { [&both[1], &both[0]] };
        let said = client(&lab, &order);
        assert_eq!(said.out, expected(lab.agent.limits().memory_bytes), "{}", said.err);
    }
}

//! As in a sharing container: the library is named by the system's own list of preloads, and lies where only containers
//! have it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail as tests do")]

mod lab;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use gpupool_preload::layout;
use lab::{Lab, Link, program, shim, simulated};
use rustix::fs::{FlockOperation, flock};

/// Where the library lies in containers.
const LIBRARIES: &str = "/usr/lib/gpupool";

/// Lays out what a container gets in `$1`, over what the machine has, and goes on with the rest in that world.
const ENTER: &str = r#"
mount -t overlay none -o "lowerdir=/usr/lib,upperdir=$1/upper,workdir=$1/work" /usr/lib
mount -t tmpfs none /run
mkdir /run/gpupool
ln -s "$2" /run/gpupool/agent.sock
mount --bind "$1/etc" /etc
shift 2
exec "$@"
"#;

/// A command in a world of its own in which every program is told to load what `preload` names. `socket` is the node's agent.
fn contained(folder: &Path, socket: &Path, preload: &Path, program: &Path) -> Command {
    let world = folder.join("world");
    let libraries = world.join("upper/gpupool");
    for part in ["etc", "upper/gpupool", "work"] {
        fs::create_dir_all(world.join(part)).unwrap();
    }
    fs::copy(shim(), libraries.join(layout::LIBRARY)).unwrap();
    layout::lay_out(&libraries).unwrap();
    for file in ["passwd", "group", "ld.so.cache"] {
        fs::copy(Path::new("/etc").join(file), world.join("etc").join(file)).unwrap();
    }
    fs::write(world.join("etc/ld.so.preload"), format!("{}\n", preload.display())).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "/bin/sh", "-ec", ENTER, "enter"]);
    command.args([&world, socket, program]).env_remove("LD_PRELOAD");
    command
}

fn said(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
#[ignore = "needs root"]
fn in_a_container_no_variable_leads_to_another_agent() {
    let (nodes, own) = (Lab::new("1xSim-4GB"), Lab::new("1xSim-4GB"));
    let preload = layout::preload_path(Path::new(LIBRARIES));
    let gpu = program(nodes.folder.path(), "gpu", Link::Nothing);
    let command = |contained_: bool| {
        let mut command = if contained_ {
            contained(nodes.folder.path(), nodes.agent.socket(), &preload, &gpu)
        } else {
            Command::new(&gpu)
        };
        command.args(["init", "retain", "alloc", "1000"]);
        simulated(&mut command, nodes.folder.path(), &nodes.cards);
        command.env("GPUPOOL_SOCKET", own.agent.socket());
        command
    };
    let (out, err) = said(&command(true).output().unwrap());
    assert_eq!(out, "init=0\nretain=0\nalloc=0\n", "{err}");
    assert!(!nodes.agent.heard().is_empty(), "the node's agent holds it");
    assert!(own.agent.heard().is_empty(), "{:?}", own.agent.heard());
    // The control: elsewhere the variable counts.
    let (out, err) = said(&command(false).env("LD_PRELOAD", shim()).output().unwrap());
    assert_eq!(out, "init=0\nretain=0\nalloc=0\n", "{err}");
    assert!(!own.agent.heard().is_empty());
}

/// Debian's loader for 32-bit programs, fetched once from wherever this machine's packages come.
fn loader_of_32_bit_programs() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    let folder = cache.expect("XDG_CACHE_HOME or HOME is set").join("gpupool/libc6-i386");
    fs::create_dir_all(folder.parent().unwrap()).unwrap();
    let lock = File::create(format!("{}.lock", folder.display())).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let loader = folder.join("root/lib32/ld-linux.so.2");
    if !loader.exists() {
        let fetch = r#"rm -rf "$1"; mkdir -p "$1/packages"; cd "$1/packages"
            apt-get -o APT::Sandbox::User=root download -q libc6-i386; dpkg-deb -x *.deb ../next; mv ../next ../root"#;
        let output = Command::new("/bin/sh").args(["-ec", fetch, "fetch"]).arg(&folder).output().unwrap();
        assert!(
            output.status.success() && loader.exists(),
            "Debian's package libc6-i386 cannot be had, so nothing can be said about 32-bit programs: {:?}",
            said(&output)
        );
    }
    loader
}

/// A 32-bit program that its loader starts, and that ends with the status 7 by itself.
fn program_of_32_bits(folder: &Path) -> PathBuf {
    let (source, to) = (folder.join("small.c"), folder.join("small"));
    let text = "void _start(void) { __asm__(\"movl $1, %eax; movl $7, %ebx; int $0x80\"); }\n";
    fs::write(&source, text).unwrap();
    let mut gcc = Command::new("gcc");
    gcc.args(["-m32", "-nostdlib", "-fPIE", "-pie", "-o"]).arg(&to).arg(&source);
    gcc.arg(format!("-Wl,--dynamic-linker={}", loader_of_32_bit_programs().display()));
    assert!(gcc.status().unwrap().success());
    to
}

#[test]
fn a_32_bit_program_starts_without_a_word_of_its_loader() {
    let folder = tempfile::tempdir().unwrap();
    let small = program_of_32_bits(folder.path());
    let run = |preload: PathBuf| {
        let output = Command::new(&small).env("LD_PRELOAD", preload).output().unwrap();
        assert_eq!(output.status.code(), Some(7));
        said(&output).1
    };
    let libraries = shim().parent().unwrap().to_owned();
    assert_eq!(run(layout::preload_path(&libraries)), "");
    // The control: this is what the loader says of the library itself.
    assert!(run(shim()).contains("wrong ELF class"));
}

#[test]
#[ignore = "needs root"]
fn in_a_container_64_bit_programs_have_the_library_and_32_bit_ones_start_without_a_word() {
    let folder = tempfile::tempdir().unwrap();
    let small = program_of_32_bits(folder.path());
    let nowhere = folder.path().join("no.sock");
    let named = |preload: &Path, program: &Path| contained(folder.path(), &nowhere, preload, program);
    let by_platform = layout::preload_path(Path::new(LIBRARIES));
    let output = named(&by_platform, &small).output().unwrap();
    assert_eq!((output.status.code(), said(&output).1), (Some(7), String::new()));
    let plain = Path::new(LIBRARIES).join(layout::LIBRARY);
    let output = named(&plain, &small).output().unwrap();
    assert!(said(&output).1.contains("wrong ELF class"), "the control: {output:?}");
    let mut maps = named(&by_platform, Path::new("/bin/cat"));
    let (maps, err) = said(&maps.arg("/proc/self/maps").output().unwrap());
    assert!(maps.contains("/gpupool/libgpupool.so") && err.is_empty(), "{maps}{err}");
}

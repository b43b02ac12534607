//! Wherever a program runs and whatever it may not do there, the library breaks nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail as tests do")]

mod lab;

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use lab::agent::{Answer, Heard};
use lab::{Lab, Link, finish, program, shim, simulated};

/// What a program that never heard of CUDA does.
const PLAIN: &str = "echo out; echo err >&2; (exit 3); ls / > /dev/null; exit $?";

fn plain() -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", PLAIN]).stdin(Stdio::null());
    command
}

/// Something done to a process right before its program begins.
type Step = fn() -> io::Result<()>;

fn done(code: libc::c_int) -> io::Result<()> {
    if code < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn limit(which: libc::__rlimit_resource_t, most: u64) -> io::Result<()> {
    let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: a limit of the type that is asked for.
    done(unsafe { libc::setrlimit(which, &raw const limit) })
}

fn no_descriptors() -> io::Result<()> {
    for fd in 0..3 {
        // SAFETY: standard descriptors, which the program about to begin does without.
        done(unsafe { libc::close(fd) })?;
    }
    Ok(())
}

fn full_outputs() -> io::Result<()> {
    // SAFETY: a path with its NUL; descriptors of this process.
    unsafe {
        let full = libc::open(c"/dev/full".as_ptr(), libc::O_WRONLY);
        done(libc::dup2(full, 1))?;
        done(libc::dup2(full, 2))
    }
}

/// No more files than the standard ones and one for the loader.
fn few_files() -> io::Result<()> {
    limit(libc::RLIMIT_NOFILE, 4)
}

fn no_room_for_files() -> io::Result<()> {
    limit(libc::RLIMIT_FSIZE, 0)
}

fn little_memory() -> io::Result<()> {
    limit(libc::RLIMIT_AS, 24 << 20)
}

/// A filter that answers EPERM to `socket`.
fn no_sockets() -> io::Result<()> {
    let statement =
        |code: u32, k: u32| libc::sock_filter { code: u16::try_from(code).unwrap_or(0), jt: 0, jf: 0, k };
    let socket = u32::try_from(libc::SYS_socket).unwrap_or(0);
    let mut filter = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        libc::sock_filter { jf: 1, ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, socket) },
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs()),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: 4, filter: filter.as_mut_ptr() };
    // SAFETY: a filter of the length that it tells.
    unsafe {
        done(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
        done(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter))
    }
}

const HARDSHIPS: [(&str, Step); 6] = [
    ("closed descriptors", no_descriptors),
    ("full outputs", full_outputs),
    ("few files", few_files),
    ("no room for files", no_room_for_files),
    ("little memory", little_memory),
    ("no sockets", no_sockets),
];

fn under(mut command: Command, step: Step) -> Output {
    // SAFETY: the steps call nothing but system calls.
    unsafe { command.pre_exec(step) };
    command.output().unwrap()
}

fn outcome(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_program_without_cuda_does_not_notice_the_library_whatever_it_may_not_do() {
    for (name, step) in HARDSHIPS {
        let bare = outcome(&under(plain(), step));
        let mut held = plain();
        held.env("LD_PRELOAD", shim()).env("GPUPOOL_SOCKET", "/nowhere/agent.sock");
        assert_eq!(outcome(&under(held, step)), bare, "{name}");
    }
}

#[test]
fn a_gpu_program_that_cannot_reach_the_agent_finds_no_card_and_does_not_wait() {
    let lab = Lab::new("1xSim-4GB");
    let output = under(lab.gpu("init count retain alloc 1000"), no_sockets);
    let (code, out, err) = outcome(&output);
    assert_eq!(out, "init=100\ncount=3 -1\nretain=3\nalloc=3\n", "{code:?} {err}");
    assert!(err.contains("no socket, descriptor or memory"), "{err}");
}

#[test]
fn a_gpu_program_without_a_descriptor_or_a_page_left_finds_no_card_and_does_not_wait() {
    let lab = Lab::new("1xSim-4GB");
    for word in ["exhaust", "tight"] {
        let output = under(lab.gpu(&format!("{word} init alloc 1000")), || limit(libc::RLIMIT_NOFILE, 64));
        let (code, out, err) = outcome(&output);
        assert_eq!(out.lines().skip(1).collect::<Vec<_>>(), ["init=100", "alloc=3"], "{word} {code:?} {err}");
    }
}

#[test]
fn a_gpu_program_with_neither_output_nor_errors_gets_its_card() {
    let lab = Lab::new("1xSim-4GB");
    for step in [no_descriptors as Step, full_outputs] {
        lab.agent.answer(Answer::Later);
        let mut command = lab.gpu("init retain alloc 1000");
        // SAFETY: the steps call nothing but system calls.
        unsafe { command.pre_exec(step) };
        let mut child = command.spawn().unwrap();
        // Long enough for the first waiting line, which goes nowhere.
        std::thread::sleep(std::time::Duration::from_millis(100));
        lab.agent.grant(0);
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(lab.agent.ledger().slot(1).unwrap().committed(), 1024 + (64 << 20));
}

#[test]
fn programs_are_started_in_every_way_from_a_program_that_holds_a_card() {
    let lab = Lab::new("1xSim-4GB");
    let held = finish(lab.other("spawn", Link::Nothing));
    let mut bare = lab.other("spawn", Link::Nothing);
    simulated(&mut bare, lab.folder.path(), &lab.cards);
    let bare = finish(bare);
    assert_eq!(held.out, bare.out);
    assert_eq!(held.out.first().map(String::as_str), Some("init=0"));
    assert_eq!(held.out.get(1).map(String::as_str), Some("retain=0"));
    assert_eq!(held.out.last().map(String::as_str), Some("exec"));
    let hellos = lab.agent.heard().iter().filter(|heard| matches!(heard, Heard::Hello { .. })).count();
    assert_eq!(hellos, 1, "what has nothing to do with the card says nothing to the agent");
}

#[test]
fn ten_thousand_short_processes_leave_nothing_behind() {
    let lab = Lab::new("1xSim-4GB");
    let mut held = lab.other("spawn", Link::Nothing);
    held.arg("10000");
    let mut bare = lab.other("spawn", Link::Nothing);
    bare.arg("2000");
    simulated(&mut bare, lab.folder.path(), &lab.cards);
    let (bare, held) = (finish(bare), finish(held));
    assert_eq!((bare.out, held.out), (vec!["failed=0".to_owned()], vec!["failed=0".to_owned()]));
    println!("a short process, bare and preloaded: {}, {}", bare.err.trim(), held.err.trim());
    assert!(lab.agent.heard().is_empty());
}

#[test]
fn a_static_program_runs_as_if_nothing_were_preloaded() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("static.c");
    fs::write(&source, "#include <stdio.h>\nint main(void) { puts(\"static\"); return 5; }\n").unwrap();
    for how in ["-static-pie", "-static"] {
        let to = folder.path().join(how);
        let built = Command::new("gcc").arg(how).arg("-o").arg(&to).arg(&source).status().unwrap();
        assert!(built.success());
        let output = Command::new(to).env("LD_PRELOAD", shim()).output().unwrap();
        assert_eq!(outcome(&output), (Some(5), "static\n".to_owned(), String::new()), "{how}");
    }
}

/// A program that says what the kernel and the loader made of it.
fn privileged(folder: &Path) -> std::path::PathBuf {
    let source = folder.join("privileged.c");
    let text = "#include <stdio.h>\n#include <stdlib.h>\n#include <sys/auxv.h>\n#include <string.h>\n\
        int main(void) { char line[512]; int loaded = 0; FILE *maps = fopen(\"/proc/self/maps\", \"r\");\n\
        while (maps && fgets(line, 512, maps)) loaded |= strstr(line, \"libgpupool\") != NULL;\n\
        printf(\"secure=%lu loaded=%d\\n\", getauxval(AT_SECURE), loaded); return 0; }\n";
    fs::write(&source, text).unwrap();
    let to = folder.join("privileged");
    let built = Command::new("gcc").arg("-o").arg(&to).arg(&source).status().unwrap();
    assert!(built.success());
    chown(&to, Some(65_534), Some(65_534)).expect("making a file somebody else's needs root");
    fs::set_permissions(&to, fs::Permissions::from_mode(0o4755)).unwrap();
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    to
}

#[test]
#[ignore = "needs root"]
fn a_privileged_program_runs_and_takes_no_library_from_its_callers_environment() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(privileged(folder.path())).env("LD_PRELOAD", shim()).output().unwrap();
    let (code, out, _) = outcome(&output);
    assert_eq!((code, out.as_str()), (Some(0), "secure=1 loaded=0\n"));
}

/// Runs a line of shell in a mount namespace of its own, whose `/etc/ld.so.preload` names the library.
fn with_system_preload(folder: &Path, line: &str) -> Command {
    let etc = folder.join("etc");
    fs::create_dir_all(&etc).unwrap();
    fs::write(etc.join("ld.so.preload"), format!("{}\n", shim().display())).unwrap();
    for file in ["passwd", "group", "ld.so.cache"] {
        fs::copy(Path::new("/etc").join(file), etc.join(file)).unwrap();
    }
    let script = format!("mount --bind '{}' /etc && exec /bin/sh -c '{line}'", etc.display());
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "/bin/sh", "-ec", &script]);
    command
}

#[test]
#[ignore = "needs root"]
fn the_systems_own_preload_list_reaches_every_program_and_disturbs_none() {
    let lab = Lab::new("1xSim-4GB");
    let folder = tempfile::tempdir().unwrap();
    let gpu = program(lab.folder.path(), "gpu", Link::Nothing);
    let privileged = privileged(folder.path());
    let line = format!(
        "{} init count retain alloc 1000; {}; /bin/true && echo true; ls /etc/ld.so.preload",
        gpu.display(),
        privileged.display()
    );
    let mut command = with_system_preload(folder.path(), &line);
    simulated(&mut command, lab.folder.path(), &lab.cards);
    command.env("GPUPOOL_SOCKET", lab.agent.socket());
    let (code, out, err) = outcome(&command.output().unwrap());
    let expected = "init=0\ncount=0 1\nretain=0\nalloc=0\nsecure=1 loaded=1\ntrue\n/etc/ld.so.preload\n";
    assert_eq!((code, out.as_str()), (Some(0), expected), "{err}");
    assert_eq!(lab.agent.heard().iter().filter(|heard| matches!(heard, Heard::Acquire { .. })).count(), 1);
    assert!(!Path::new("/etc/ld.so.preload").exists(), "the machine's own list is as it was");
}

#[test]
#[ignore = "needs root"]
fn without_proc_and_with_a_full_disk_programs_run_as_before() {
    let folder = tempfile::tempdir().unwrap();
    let full = folder.path().join("full");
    fs::create_dir(&full).unwrap();
    let script = format!(
        "mount -t tmpfs -o size=4k none '{full}'; cat /dev/zero > '{full}/all' 2>/dev/null || true; \
         mount -t tmpfs none /proc; cd '{full}'; TMPDIR='{full}'; export TMPDIR; \
         exec env LD_PRELOAD='{shim}' /bin/sh -c '{PLAIN}'",
        full = full.display(),
        shim = shim().display()
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "/bin/sh", "-ec", &script]);
    assert_eq!(outcome(&command.output().unwrap()), outcome(&plain().output().unwrap()));
}

#[test]
fn under_musl_it_holds_nothing_and_harms_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("musl");
    let source = folder.path().join("musl.c");
    let text = "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <stdio.h>\n\
        int main(void) { void *self = dlopen(0, RTLD_NOW);\n\
        printf(\"%d %d %d %d\\n\", dlsym(self, \"puts\") == (void *)puts, dlsym(RTLD_DEFAULT, \"puts\") == (void *)puts,\n\
        dlsym(RTLD_NEXT, \"puts\") != 0, dlsym(self, \"no_such_thing\") != 0);\n\
        printf(\"%d\\n\", dlopen(\"libcuda.so.1\", RTLD_NOW) != 0); return 4; }\n";
    fs::write(&source, text).unwrap();
    let mut compiler = Command::new("musl-gcc");
    let built = compiler.arg("-o").arg(&to).arg(&source).status().expect("the tests need musl-gcc");
    assert!(built.success());
    let bare = outcome(&Command::new(&to).output().unwrap());
    assert_eq!(bare, (Some(4), "1 1 1 0\n0\n".to_owned(), String::new()));
    for socket in [None, Some("/nowhere/agent.sock")] {
        let mut held = Command::new(&to);
        held.env("LD_PRELOAD", shim());
        if let Some(socket) = socket {
            held.env("GPUPOOL_SOCKET", socket);
        }
        assert_eq!(outcome(&held.output().unwrap()), bare, "{socket:?}");
    }
}

//! Every kind of program and place in which the loader does not load the library: `gpupool run` says so, or starts nothing.
//! Each has its control: the ordinary kind, which has the library and of which nothing is said.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::agent_node::{AgentNode, dist, said};

/// A copy of what was laid out, in this folder.
fn installed(folder: &Path) -> PathBuf {
    fs::create_dir_all(folder.join("bin")).unwrap();
    fs::copy(dist().join("bin/gpupool"), folder.join("bin/gpupool")).unwrap();
    let copied = Command::new("cp").arg("-a").arg(dist().join("lib")).arg(folder.join("lib")).status();
    assert!(copied.unwrap().success());
    folder.to_owned()
}

/// `gpupool run` of that copy, of a program that names the libraries that it has; what is `before` starts it.
fn run(node: &AgentNode, installed: &Path, before: &[&str]) -> Command {
    let program = installed.join("bin/gpupool");
    let mut words = before.iter().map(|word| std::ffi::OsString::from(*word)).chain([program.into()]);
    let mut command = Command::new(words.next().unwrap());
    command.args(words).arg("run").arg("--socket").arg(node.socket());
    command.args(["--core", "5", "--memory", "5", "--", "cat", "/proc/self/maps"]);
    command.env_remove("GPUPOOL_LIB_DIR");
    command
}

fn has_library(output: &Output) -> bool {
    String::from_utf8_lossy(&output.stdout).contains("/libgpupool.so")
}

/// The command had the library, and nobody said anything.
fn assert_held(output: &Output) {
    assert!(output.status.success() && has_library(output) && said(output).is_empty(), "{output:?}");
}

/// Nothing was started, and one line says why.
fn assert_refused(output: &Output, why: &str) {
    let said = said(output);
    assert_eq!((output.status.code(), said.lines().count(), output.stdout.len()), (Some(1), 1, 0), "{said}");
    assert!(said.contains(why), "{said}");
}

#[test]
fn from_a_path_that_no_list_of_preloads_can_name_nothing_is_started() {
    let node = AgentNode::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    assert_held(&run(&node, &installed(&folder.path().join("plain")), &[]).output().unwrap());
    for (name, why) in [("My Programs", "a space"), ("a:b", "a colon"), ("$LIB", "a dollar sign")] {
        let installed = installed(&folder.path().join(name));
        assert_refused(&run(&node, &installed, &[]).output().unwrap(), why);
        // As it says: another path that leads there will do.
        let link = folder.path().join("link");
        symlink(installed.join("lib"), &link).unwrap();
        assert_held(&run(&node, &installed, &[]).env("GPUPOOL_LIB_DIR", &link).output().unwrap());
        fs::remove_file(link).unwrap();
    }
    assert!(node.status().pods.is_empty());
}

#[test]
fn programs_of_other_kinds_run_as_before_too_in_an_installation_without_platforms() {
    let node = AgentNode::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    let installed = installed(&folder.path().join("plain"));
    fs::remove_dir_all(installed.join("lib/by-platform")).unwrap();
    assert_held(&run(&node, &installed, &[]).output().unwrap());
}

#[test]
#[ignore = "needs root"]
fn a_library_that_the_user_cannot_read_starts_nothing() {
    let node = AgentNode::start(&[]);
    for place in [node.folder().to_owned(), node.socket()] {
        fs::set_permissions(place, fs::Permissions::from_mode(0o777)).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let installed = installed(&folder.path().join("plain"));
    let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    assert_held(&run(&node, &installed, &nobody).output().unwrap());
    let library = installed.join("lib/libgpupool.so");
    fs::set_permissions(&library, fs::Permissions::from_mode(0o700)).unwrap();
    assert_refused(&run(&node, &installed, &nobody).output().unwrap(), "libgpupool.so cannot be read");
    fs::set_permissions(installed.join("lib"), fs::Permissions::from_mode(0o700)).unwrap();
    assert_refused(&run(&node, &installed, &nobody).output().unwrap(), "libgpupool.so cannot be read");
}

#[test]
#[ignore = "needs root"]
fn a_library_on_a_file_system_from_which_nothing_is_executed_starts_nothing() {
    let node = AgentNode::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    let installed = installed(&folder.path().join("plain"));
    let mounted = |options: &str| {
        let lib = installed.join("lib").display().to_string();
        let script =
            format!("mount --bind '{lib}' '{lib}'; mount -o remount,bind,{options} '{lib}'; exec \"$@\"");
        let before = ["unshare", "--mount", "--propagation", "private", "/bin/sh", "-ec", &script, "run"];
        run(&node, &installed, &before).output().unwrap()
    };
    assert_held(&mounted("exec"));
    assert_refused(&mounted("noexec"), "noexec");
}

/// A program of this kind that says a word and ends with the status 5.
fn program(folder: &Path, compiler: &str, options: &[&str]) -> PathBuf {
    let (source, to) = (folder.join("small.c"), folder.join("small"));
    let text = "#include <unistd.h>\nint main(void) { return write(1, \"word\", 4) == 4 ? 5 : 1; }\n";
    fs::write(&source, text).unwrap();
    let mut compiler = Command::new(compiler);
    assert!(compiler.args(options).arg("-o").arg(&to).arg(&source).status().unwrap().success());
    to
}

/// What `gpupool run` says of a program that it runs.
fn said_of(node: &AgentNode, program: &Path) -> String {
    let mut command = node.gpupool("run");
    command.args(["--core", "5", "--memory", "5", "--"]).arg(program);
    let output = command.output().unwrap();
    let done = (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned());
    assert_eq!(done, (Some(5), "word".to_owned()), "it runs as it would without: {}", said(&output));
    said(&output)
}

#[test]
fn of_a_program_into_which_nothing_can_be_preloaded_one_line_says_that_it_is_not_held() {
    let node = AgentNode::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(said_of(&node, &program(folder.path(), "gcc", &[])), "");
    for (compiler, options, why) in [
        ("gcc", &["-static"][..], "a static program"),
        ("gcc", &["-static-pie"], "a static program"),
        ("musl-gcc", &[], "not glibc's"),
    ] {
        let said = said_of(&node, &program(folder.path(), compiler, options));
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains("small is not held to its share") && said.contains(why), "{said}");
    }
    let script = folder.path().join("script");
    fs::write(&script, format!("#!{}\n", folder.path().join("small").display())).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(said_of(&node, &script).contains("not glibc's"));
}

#[test]
fn of_a_32_bit_program_one_line_says_that_it_is_not_held() {
    let node = AgentNode::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    let (source, to) = (folder.path().join("small.c"), folder.path().join("small"));
    let text = "void _start(void) { __asm__(\"movl $4, %eax; movl $1, %ebx; movl $word, %ecx; movl $4, %edx; int $0x80;\\n\
                movl $1, %eax; movl $5, %ebx; int $0x80\"); }\n\
                __asm__(\".section .rodata; word: .ascii \\\"word\\\"; .text\");\n";
    fs::write(&source, text).unwrap();
    let mut gcc = Command::new("gcc");
    gcc.args(["-m32", "-nostdlib", "-static", "-no-pie", "-o"]).arg(&to).arg(&source);
    assert!(gcc.status().unwrap().success());
    let said = said_of(&node, &to);
    assert!(said.lines().count() == 1 && said.contains("a 32-bit program"), "{said}");
}

#[test]
#[ignore = "needs root"]
fn of_a_program_with_privileges_of_its_own_one_line_says_that_it_is_not_held() {
    let node = AgentNode::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = program(folder.path(), "gcc", &[]);
    assert_eq!(said_of(&node, &program), "");
    std::os::unix::fs::chown(&program, Some(65_534), Some(65_534)).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    let said = said_of(&node, &program);
    assert!(said.lines().count() == 1 && said.contains("more privileges"), "{said}");
}

//! `gpupool check-config` from the outside: standard output, exit codes, and dumps that cannot be read.
#![allow(clippy::expect_used, reason = "a test that cannot set itself up has failed")]

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

const LABEL: &str = "nvidia.com/gpu.workload.config";

struct Run {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl From<Output> for Run {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

impl Run {
    #[track_caller]
    fn is_unreadable(&self, word: &str) {
        assert_eq!((self.code, self.stdout.as_str()), (Some(2), ""), "{}", self.stderr);
        assert!(self.stderr.contains(word), "{word:?} not in {:?}", self.stderr);
        assert_eq!(self.stderr.lines().count(), 1, "{}", self.stderr);
        assert!(self.stderr.len() < 600, "{}", self.stderr);
    }
}

fn gpupool() -> Command {
    Command::new(env!("CARGO_BIN_EXE_gpupool"))
}

/// Files of one test.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(TempDir::new().expect("temporary directory"))
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, content).expect("writes");
        path
    }

    fn check(&self, content: impl AsRef<[u8]>, options: &[&str]) -> Run {
        check(&self.write("dump", content), options)
    }
}

fn check(path: &Path, options: &[&str]) -> Run {
    gpupool().arg("check-config").arg(path).args(options).output().expect("runs").into()
}

fn check_text(content: impl AsRef<[u8]>) -> Run {
    Files::new().check(content, &[])
}

fn node(name: &str, label: Option<&str>, allocatable: &Value) -> Value {
    let mut labels = json!({ "kubernetes.io/hostname": name });
    if let Some(label) = label {
        labels[LABEL] = json!(label);
    }
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "name": name, "labels": labels },
        "status": { "allocatable": allocatable, "capacity": allocatable },
    })
}

fn list(nodes: &[Value]) -> String {
    json!({ "apiVersion": "v1", "items": nodes, "kind": "List", "metadata": { "resourceVersion": "" } })
        .to_string()
}

fn lab() -> Vec<Value> {
    vec![
        node("lab-node-0", Some("container"), &json!({ "cpu": "8", "nvidia.com/gpu": "4" })),
        node("lab-node-1", Some("vm-passthrough"), &json!({ "cpu": "8", "nvidia.com/GA102GL_A10": "2" })),
        node("lab-node-2", Some("vm-vgpu"), &json!({ "cpu": "8", "nvidia.com/NVIDIA_A10-12Q": "4" })),
    ]
}

#[test]
fn the_published_lab_is_ok() {
    let run = check_text(list(&lab()));
    assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (Some(0), "OK=3\n", ""));
}

#[test]
fn one_line_a_mismatch_in_name_order_and_exit_1() {
    let nodes = [
        node("node-b", Some("vm-vgpu"), &json!({ "nvidia.com/GA102GL_A10": "2" })),
        node("node-c", None, &json!({ "nvidia.com/gpu": "2" })),
        node("node-a10", Some("container"), &json!({ "nvidia.com/gpu": "0" })),
        node("node-a", Some("vm-passthrough"), &json!({ "nvidia.com/GA102GL_A10": "2" })),
        node("node-a1", Some("vm-passthru"), &json!({ "nvidia.com/GA102GL_A10": "2" })),
    ];
    let run = check_text(list(&nodes));
    assert_eq!(run.code, Some(1));
    let starts: Vec<_> = run.stdout.lines().map(|line| line.split(' ').next().unwrap_or_default()).collect();
    assert_eq!(starts, ["MISMATCH=node-a1", "MISMATCH=node-a10", "MISMATCH=node-b"]);
    assert!(run.stderr.contains("node-c") && !run.stderr.contains("MISMATCH"), "{}", run.stderr);
}

#[test]
fn standard_input_yaml_a_typed_list_and_one_node_are_read_too() {
    let mut child = gpupool()
        .args(["check-config", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    child.stdin.take().expect("piped").write_all(list(&lab()).as_bytes()).expect("writes");
    assert_eq!(Run::from(child.wait_with_output().expect("ends")).stdout, "OK=3\n");

    // As the API server answers: the items of a typed list say no kind.
    let mut bare = lab();
    for node in &mut bare {
        node.as_object_mut().expect("object").retain(|key, _| key == "metadata" || key == "status");
    }
    let typed = json!({ "kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": bare });
    assert_eq!(check_text(typed.to_string()).stdout, "OK=3\n");
    assert_eq!(check_text(lab()[1].to_string()).stdout, "OK=1\n");
    assert_eq!(check_text(format!("\u{feff}{}", list(&lab()))).stdout, "OK=3\n");

    let yaml = format!(
        "apiVersion: v1\nkind: Node\nmetadata:\n  name: a\n  labels: {{{LABEL}: vm-vgpu}}\nstatus:\n  allocatable:\n    \
         nvidia.com/NVIDIA_A10-12Q: 4 # a remark\n"
    );
    assert_eq!(check_text(&yaml).stdout, "OK=1\n");
    let wrong = check_text(yaml.replace("vm-vgpu", "container"));
    assert_eq!(wrong.code, Some(1));
    assert!(wrong.stdout.starts_with("MISMATCH=a "), "{}", wrong.stdout);
}

#[test]
fn nothing_to_judge_is_ok_and_said() {
    for empty in
        [list(&[]), list(&[node("a", None, &json!({}))]), r#"{"kind":"List","items":null}"#.to_owned()]
    {
        let run = check_text(empty);
        assert_eq!((run.code, run.stdout.as_str()), (Some(0), "OK=0\n"));
        assert!(run.stderr.contains("nothing was judged"), "{}", run.stderr);
    }
}

#[test]
fn what_is_no_dump_of_nodes_is_unreadable() {
    let with = |key: &str, value: Value| {
        let mut node = lab().remove(0);
        node[key] = value;
        list(&[node])
    };
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p" } });
    let whole = list(&lab());
    for (content, word) in [
        (String::new(), "is empty"),
        (" \n\t".to_owned(), "is empty"),
        ("hello".to_owned(), "no mapping"),
        ("a: b: c".to_owned(), "neither JSON nor YAML"),
        ("{}".to_owned(), "neither kind nor items"),
        ("[]".to_owned(), "bare array"),
        ("null".to_owned(), "no mapping"),
        ("{\"kind\":\"List\"}".to_owned(), "without items"),
        ("{\"kind\":\"List\",\"items\":{}}".to_owned(), "items is no array"),
        ("{\"kind\":\"List\",\"items\":[null]}".to_owned(), "item 1 is no object"),
        (
            "{\"kind\":\"List\",\"items\":[[\"Node\",\"v1\",{\"name\":\"a\"},null]]}".to_owned(),
            "item 1 is no object",
        ),
        ("{\"kind\":\"List\",\"items\":[],}".to_owned(), "not JSON"),
        ("{\"kind\":\"List\",\"items\":[{},]}".to_owned(), "without a name"),
        ("{'kind':'List','items':[]}".to_owned(), "not JSON"),
        (whole.replacen("\"Node\"", "\"Pod\"", 2), "item 1 is a Pod"),
        (list(&[lab().remove(0), pod.clone()]), "item 2 is a Pod"),
        (
            list(&[
                json!({ "kind": "Node", "apiVersion": "longhorn.io/v1beta2", "metadata": { "name": "n" } }),
            ]),
            "longhorn.io",
        ),
        (pod.to_string(), "is a Pod"),
        (json!({ "kind": "PodList", "items": [] }).to_string(), "is a PodList"),
        (with("metadata", json!({})), "without a name"),
        (with("metadata", json!({ "name": "" })), "without a name"),
        (with("metadata", json!(["lab-node-0", null])), "an object"),
        (with("metadata", json!({ "name": "a", "labels": { LABEL: 4 } })), "string"),
        (with("status", json!({ "allocatable": [] })), "an object"),
        (format!("{whole}{whole}"), "text behind the end"),
        (format!("{whole}x"), "text behind the end"),
        ("kind: List\nitems: []\n---\nkind: List\nitems: []\n".to_owned(), "several YAML documents"),
        ("items: []\n".to_owned(), "no kind"),
    ] {
        check_text(&content).is_unreadable(word);
    }
    check_text(b"\xff\xfe{\0}\0").is_unreadable("not UTF-8");
    check_text([list(&lab()).as_bytes(), b"\0"].concat()).is_unreadable("text behind the end");
}

#[test]
fn quantities_count_in_every_form_and_are_refused_in_none_other() {
    let with = |quantity: &str| {
        let whole = list(&[node("a", Some("container"), &json!({ "nvidia.com/gpu": "Q" }))]);
        check_text(whole.replace("\"Q\"", quantity))
    };
    for ok in ["\"4\"", "4", "4.0", "\"4k\"", "\"1e0\"", "1e0", "\"4000m\"", "\"1Ki\"", "4e-1"] {
        assert_eq!(with(ok).stdout, "OK=1\n", "{ok}");
    }
    for zero in ["\"0\"", "0", "0.0", "\"0.0\"", "\"0e3\"", "0e3", "-0", "\"0Ki\"", "\"00\""] {
        let run = with(zero);
        assert_eq!(run.code, Some(1), "{zero}");
        assert!(run.stdout.contains("no nvidia.com/ resource"), "{zero}: {}", run.stdout);
    }
    for bad in [
        "\"\"",
        "\"four\"",
        "\"4 \"",
        "\"4K\"",
        "null",
        "true",
        "[4]",
        "{}",
        "\"1e99\"",
        "1e400",
        "\"\\u0664\"",
    ] {
        with(bad).is_unreadable("node a: nvidia.com/gpu: ");
    }
}

#[test]
fn only_what_is_judged_must_be_a_quantity() {
    let unlabelled = node("a", None, &json!({ "nvidia.com/gpu": "many" }));
    assert_eq!(check_text(list(&[unlabelled])).stdout, "OK=0\n");
    let mut node = node("a", Some("container"), &json!({ "cpu": "many", "nvidia.com/gpu": "4" }));
    node["status"]["capacity"]["nvidia.com/gpu"] = json!("many");
    let run = check_text(list(&[node.clone()]));
    assert_eq!(run.stdout, "OK=1\n");
    assert!(run.stderr.contains("warning: node a: capacity does not count"), "{}", run.stderr);
    node["status"]["allocatable"] = Value::Null;
    check_text(list(&[node])).is_unreadable("many");
}

#[test]
fn a_key_twice_is_unreadable_where_it_could_change_the_verdict() {
    let whole = list(&lab());
    for (once, twice) in [
        ("\"nvidia.com/gpu\":\"4\"", "\"nvidia.com/gpu\":\"0\",\"nvidia.com/gpu\":\"4\""),
        (
            r#""nvidia.com/gpu.workload.config":"container""#,
            r#""nvidia.com/gpu.workload.config":"a","nvidia.com/gpu.workload.config":"container""#,
        ),
        (r#""nvidia.com/gpu":"4""#, r#""nvidia.com/gpu":"4","nvidia.com/\u0067pu":"4""#),
        ("\"kind\":\"Node\"", "\"kind\":\"Node\",\"kind\":\"Node\""),
        ("\"name\":\"lab-node-0\"", "\"name\":\"lab-node-0\",\"name\":\"lab-node-9\""),
        ("\"items\":[", "\"items\":[],\"items\":["),
        ("\"kind\":\"List\"", "\"kind\":\"List\",\"kind\":\"List\""),
        ("\"allocatable\":{", "\"allocatable\":{},\"allocatable\":{"),
    ] {
        assert!(whole.contains(once), "{once}");
        let run = check_text(whole.replacen(once, twice, 1));
        assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{once}: {}", run.stderr);
    }
    check_text("kind: List\nkind: List\nitems: []\n").is_unreadable("duplicate");
}

#[test]
fn a_directory_a_missing_file_and_a_forbidden_one_are_unreadable() {
    let files = Files::new();
    check(files.0.path(), &[]).is_unreadable("directory");
    check(&files.0.path().join("none"), &[]).is_unreadable("No such file");

    let dump = files.write("dump", list(&lab()));
    fs::set_permissions(&dump, fs::Permissions::from_mode(0o000)).expect("chmod");
    fs::set_permissions(files.0.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
    // Root reads everything; nobody does not, and runs a copy that it can reach. Another process makes the copy: if
    // this one had it open for writing, a program that another test starts just then would hold it open too, and a
    // file open for writing cannot be run.
    let program = files.0.path().join("gpupool");
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_gpupool")).arg(&program).status();
    assert!(copied.is_ok_and(|status| status.success()), "cp copies");
    let mut command = Command::new(&program);
    if fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0) {
        command.uid(65534).gid(65534);
    }
    Run::from(command.arg("check-config").arg(&dump).output().expect("runs"))
        .is_unreadable("Permission denied");
}

#[test]
fn hostile_names_and_labels_break_no_line() {
    let megabyte = "x".repeat(1 << 20);
    let nodes = [
        node("a\nOK=9", Some("vm\n\u{1b}[2Jvgpu\u{202e}"), &json!({ "nvidia.com/gpu": "4" })),
        node("b b", Some(&megabyte), &json!({ "nvidia.com/gpu": "4" })),
        node("c", Some("container"), &json!({ "nvidia.com/x\nOK=9\r": "4" })),
        node("d", Some("container"), &json!({ (format!("nvidia.com/{megabyte}")): "4" })),
    ];
    let run = check_text(list(&nodes));
    assert_eq!(run.code, Some(1));
    let lines: Vec<_> = run.stdout.lines().collect();
    assert_eq!(lines.len(), 4, "{}", run.stdout);
    assert!(lines.iter().all(|line| line.starts_with("MISMATCH=") && line.len() < 700), "{}", run.stdout);
    assert!(lines[1].starts_with("MISMATCH=b\\u{20}b label"), "{}", lines[1]);
    let odd = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
    assert!(!run.stdout.contains(odd) && !run.stderr.contains(odd), "{} {}", run.stdout, run.stderr);
}

#[test]
fn hostile_names_and_labels_are_cut_and_escaped_in_json_too() {
    let megabyte = "x".repeat(1 << 20);
    let nodes = [
        node("a\u{202e} b", Some("container"), &json!({ "nvidia.com/x\u{202e}": "4" })),
        node(&megabyte, Some(&megabyte), &json!({ (format!("nvidia.com/{megabyte}")): "4" })),
    ];
    let run = Files::new().check(list(&nodes), &["--output", "json"]);
    let verdict: Value = serde_json::from_str(&run.stdout).expect("JSON");
    assert_eq!(verdict["mismatches"][0]["node"], "a\\u{202e}\\u{20}b");
    assert!(!run.stdout.contains('\u{202e}') && run.stdout.lines().all(|line| line.len() < 700), "{verdict}");
}

#[test]
fn the_lenient_rules_are_an_option() {
    let nodes = list(&[
        node("a", Some("container"), &json!({ "nvidia.com/gpu": "0", "nvidia.com/gpu.shared": "128" })),
        node("b", Some("vm-passthrough"), &json!({ "nvidia.com/pgpu": "8", "nvidia.com/nvswitch": "4" })),
    ]);
    let files = Files::new();
    assert_eq!(files.check(&nodes, &[]).stdout.lines().count(), 2);
    assert_eq!(files.check(&nodes, &["--rules", "operator"]).stdout, "OK=2\n");
    assert_eq!(files.check(&nodes, &["--rules", "generous"]).code, Some(2));
}

#[test]
fn programs_get_json() {
    let mut nodes = lab();
    nodes.push(node("lab-node-3", Some("vm-vgpu"), &json!({ "nvidia.com/GA102GL_A10": "2" })));
    nodes.push(node("lab-node-4", Some("vm-passthrough"), &json!({ "nvidia.com/2571": "1" })));
    let run = Files::new().check(list(&nodes), &["--output", "json"]);
    assert_eq!(run.code, Some(1));
    let verdict: Value = serde_json::from_str(&run.stdout).expect("JSON");
    let reason = verdict["mismatches"][0]["reason"].as_str().expect("reason").to_owned();
    let warning = verdict["warnings"][0]["warning"].as_str().expect("warning").to_owned();
    assert!(reason.contains("GA102GL_A10") && warning.contains("raw PCI id"), "{verdict}");
    let expected = json!({
        "verdict": "mismatch",
        "rules": "strict",
        "judged": 5,
        "unlabelled": 0,
        "mismatches": [{
            "node": "lab-node-3",
            "label": "vm-vgpu",
            "code": "WrongKind",
            "reason": reason,
            "found": [{ "resource": "nvidia.com/GA102GL_A10", "kind": "passthrough", "quantity": "2" }],
        }],
        "warnings": [{ "node": "lab-node-4", "warning": warning }],
    });
    assert_eq!(verdict, expected);
    let ok = Files::new().check(list(&lab()), &["--output", "json"]);
    assert_eq!(ok.code, Some(0));
    assert_eq!(serde_json::from_str::<Value>(&ok.stdout).expect("JSON")["verdict"], "ok");
    let cut = Files::new().check(&list(&lab())[..200], &["--output", "json"]);
    assert_eq!((cut.code, cut.stdout.as_str()), (Some(2), ""));
}

#[test]
fn a_verdict_that_cannot_be_printed_is_no_verdict() {
    let files = Files::new();
    let dump = files.write("dump", list(&lab()));
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
    let run: Run = gpupool().arg("check-config").arg(&dump).stdout(full).output().expect("runs").into();
    assert_eq!(run.code, Some(2), "{}", run.stderr);
}

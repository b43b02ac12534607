//! The reader under cut and broken dumps: the verdict is that of the whole dump, or there is none.

use std::io::{self, Read};

use gpupool_core::checker::Rules;
use proptest::prelude::*;

use super::check;

/// The mismatches of a dump, or how many nodes are right; nothing if it cannot be read.
fn verdict(source: impl Read) -> Option<String> {
    let report = check(source, Rules::Strict).ok()?;
    if report.is_ok() {
        return Some(format!("{} right", report.judged));
    }
    let mismatches = report.mismatches.iter().map(|bad| format!("{} {}", bad.node, bad.mismatch));
    Some(mismatches.collect::<Vec<_>>().join("\n"))
}

fn node(name: &str, label: &str, resource: &str, quantity: &str) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"Node","metadata":{{"annotations":{{"e":"\u00e9\ud83d\ude00\"\\ é😀"}},"name":"{name}",
        "labels":{{"x":"y","nvidia.com/gpu.workload.config":"{label}"}}}},"spec":{{}},
        "status":{{"allocatable":{{"cpu":"4","nvidia.com/{resource}":{quantity}}},"capacity":{{"nvidia.com/{resource}":{quantity}}},
        "images":[{{"names":["a","b"],"sizeBytes":-1.5e+10}},{{"ok":true,"no":false,"nil":null}}]}}}}"#
    )
}

fn list(nodes: &[String]) -> String {
    let items = nodes.join(",\n");
    format!(
        "{{\n \"apiVersion\": \"v1\",\n \"items\": [{items}],\n \"kind\": \"List\",\n \"metadata\": {{}}\n}}\n"
    )
}

fn lab() -> Vec<String> {
    vec![
        node("lab-node-0", "container", "gpu", "\"4\""),
        node("lab-node-1", "vm-passthrough", "GA102GL_A10", "2"),
        node("lab-node-2", "vm-vgpu", "NVIDIA_A10-12Q", "\"4\""),
    ]
}

const YAML: &str = "apiVersion: v1
items:
- apiVersion: v1
  kind: Node
  metadata:
    labels:
      nvidia.com/gpu.workload.config: container
    name: lab-node-0
  status:
    allocatable:
      nvidia.com/gpu: \"4\"
- apiVersion: v1
  kind: Node
  metadata:
    labels:
      nvidia.com/gpu.workload.config: vm-vgpu
    name: lab-node-2
  status:
    allocatable:
      nvidia.com/gpu: 4
kind: List
metadata:
  resourceVersion: \"\"
";

const YAML_VERDICT: &str = "lab-node-2 label vm-vgpu, but nvidia.com/gpu (4)";

/// Gives its bytes a few at a time.
struct SlowReader<'a>(&'a [u8], usize);

impl Read for SlowReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.1.min(self.0.len()).min(buffer.len());
        buffer[..count].copy_from_slice(&self.0[..count]);
        self.0 = &self.0[count..];
        Ok(count)
    }
}

#[test]
fn a_dump_reads_the_same_in_pieces_of_any_size() {
    let text = list(&lab());
    for size in 1..100 {
        assert_eq!(verdict(SlowReader(text.as_bytes(), size)).as_deref(), Some("3 right"), "{size}");
    }
}

#[test]
fn a_json_dump_cut_at_any_byte_gives_no_verdict() {
    for whole in [list(&lab()), lab().remove(0)] {
        let end = whole.trim_end().len();
        assert!(verdict(&whole.as_bytes()[..end]).is_some());
        for cut in 0..end {
            assert_eq!(verdict(&whole.as_bytes()[..cut]), None, "cut at {cut}");
        }
    }
}

#[test]
fn a_yaml_list_cut_before_its_kind_gives_no_verdict() {
    let end = YAML.find("kind: List").expect("kind") + "kind: List".len();
    for cut in 0..YAML.len() {
        let got = verdict(&YAML.as_bytes()[..cut]);
        // Behind the kind nothing is left that the verdict needs.
        assert!(
            got.is_none() || (cut >= end && got.expect("some").starts_with(YAML_VERDICT)),
            "cut at {cut}"
        );
    }
    assert!(verdict(YAML.as_bytes()).expect("whole").starts_with(YAML_VERDICT));
}

#[test]
fn the_place_of_an_error_is_that_in_the_whole_file() {
    let mut nodes = lab();
    nodes[2] = nodes[2].replacen("\"status\"", "status", 1);
    let text = list(&nodes);
    let at = text.rfind("status").expect("the broken key");
    let line = text[..at].matches('\n').count() + 1;
    let error = check(text.as_bytes(), Rules::Strict).expect_err("a key without quotes").to_string();
    assert!(error.starts_with(&format!("line {line} column ")), "{error}, not line {line}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn what_is_accepted_after_damage_is_still_json_in_utf8(
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0_u8..3), 1..4), chunk in 1_usize..200,
    ) {
        let mut bytes = list(&lab()).into_bytes();
        for (place, byte, how) in damage {
            let place = place.index(bytes.len());
            match how {
                0 => bytes[place] = byte,
                1 => { bytes.remove(place); }
                _ => bytes.insert(place, byte),
            }
        }
        if verdict(SlowReader(&bytes, chunk)).is_some() {
            prop_assert!(std::str::from_utf8(&bytes).is_ok());
            let json = serde_json::from_slice::<serde::de::IgnoredAny>(&bytes);
            prop_assert!(json.is_ok(), "{json:?}: {}", String::from_utf8_lossy(&bytes));
        }
    }

    #[test]
    fn any_bytes_at_all_end_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert_eq!(verdict(bytes.as_slice()), None);
    }

    #[test]
    fn any_text_that_begins_like_json_or_yaml_ends_without_a_panic(
        start in proptest::sample::select(vec!["{", "{\"items\":[", "{\"kind\":\"Node\",", "items:\n", "kind: List\n", "- ", "&a [*a", "{\"items\":[{\"metadata\":{\"labels\":"]),
        rest in "[\\[\\]{}:,\"'a-z0-9 \n&*-]{0,60}",
    ) {
        let _ = verdict(format!("{start}{rest}").as_bytes());
    }
}

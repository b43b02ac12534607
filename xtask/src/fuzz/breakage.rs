//! How dumps are broken: in their structure before they are written down, and in their text.

use fastrand::Rng;
use serde_json::Value;

use super::dumps::{Dump, FORMS, Form};
use super::grammar::is_json;

/// What is known about the answer to an input.
#[derive(Debug)]
pub(super) enum Expected {
    /// This verdict: what was changed changes no meaning.
    Verdict(Vec<String>),
    /// No verdict: this is no JSON, though it begins like it.
    NoVerdict,
    /// Either, as long as it is well formed.
    Anything,
}

/// What the checker is given.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) bytes: Vec<u8>,
    pub(super) options: &'static [&'static str],
    pub(super) expected: Expected,
}

/// How far the reader looks at once, in bytes: what lies across such a border is read in two steps.
const WINDOW: usize = 1 << 20;

/// Stands in the structure for a text that no value can hold.
const RAW: &str = "%RAW%";

/// Words that mean something in JSON, in YAML or to the checker, some of them where none belongs.
const WORDS: &[&str] = &[
    "null",
    "true",
    "false",
    "~",
    "{}",
    "[]",
    "\"\"",
    "-0",
    "0",
    "1e999",
    "1e-999",
    "-1e1",
    "0x10",
    "0o7",
    "1_0",
    "NaN",
    "Infinity",
    ".inf",
    "9223372036854775808",
    "-9223372036854775809",
    "18446744073709551616",
    "1.",
    ".5",
    "\"4Ki\"",
    "\"4 \"",
    "\"1e0\"",
    "\"0e3\"",
    "\"-1\"",
    "\"\\u0664\"",
    "\"1e2147483648\"",
    "4k",
    "0.0",
    "4e",
    "n",
    "\"\\ud800\"",
    "\"\\ud800\\udc00\"",
    "\"\\u0000\"",
    "\"\\u000a\"",
    "\"\\",
    "\"\\u12",
    "\\",
    "\"",
    "'",
    ",",
    ":",
    "{",
    "}",
    "[",
    "]",
    "{\"a\":",
    "\"items\":[",
    "\"items\":null,",
    "\"kind\":\"List\",",
    "\"kind\":\"Pod\",",
    "\"kind\":null,",
    "\"apiVersion\":\"v2\",",
    "\"name\":\"x\",",
    "\"nvidia.com/gpu\":\"1\",",
    "\"nvidia.com/gpu.workload.config\":\"container\",",
    "\"allocatable\":{},",
    "\"metadata\":null,",
    "\n---\n",
    "\n...\n",
    "---",
    "&a ",
    "*a",
    "<<: *a",
    "&a [*a,*a]",
    "!!binary ",
    "!!str ",
    "!x ",
    "? ",
    "- ",
    "|\n",
    ">-\n",
    "%YAML 1.2\n",
    "# ",
    "\t",
    "\r",
    "\r\n",
    "\u{feff}",
    "\0",
    "\u{85}",
    "\u{2028}",
    "\u{202e}",
    "\u{1b}[2J",
    "\nOK=9\n",
    "MISMATCH=a b",
    "//",
    "/* */",
    "kind: List\n",
    "items:\n",
    "  ",
    "@",
    "`",
    "\u{10ffff}",
];

/// Byte sequences that are no UTF-8, or only half of it.
const NO_UTF8: &[&[u8]] = &[
    b"\xff",
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\xf0\x9f",
    b"\x80",
    b"\xf5\x80\x80\x80",
    b"\xff\xfe",
    b"\xe2\x82",
];

impl Input {
    /// An input made of these dumps.
    pub(super) fn new(dumps: &[Dump], random: &mut Rng) -> Self {
        let dump = &dumps[random.usize(..dumps.len())];
        if random.u8(..) < 16 {
            return Self::harmless(dump, random);
        }
        let mut text = broken_structure(dump, random).into_bytes();
        let changes = if random.u8(..) < 64 { 0 } else { random.usize(1..4) };
        for _ in 0..changes {
            break_text(&mut text, dumps, random);
        }
        if random.u8(..) < 4 {
            let border = WINDOW.saturating_sub(random.usize(..=text.len()));
            text = [vec![b' '; border], text].concat();
        }
        let options: &[&[&str]] = &[&[], &[], &["--rules", "operator"], &["--output", "json"]];
        let expected =
            if begins_like_json_but_is_none(&text) { Expected::NoVerdict } else { Expected::Anything };
        Self { bytes: text, options: options[random.usize(..options.len())], expected }
    }

    /// A whole dump with blanks where they mean nothing, enough of them that the reader meets a border somewhere.
    fn harmless(dump: &Dump, random: &mut Rng) -> Self {
        let text = Form::Pretty.text(&dump.value);
        let line = random.usize(..text.lines().count());
        let blanks = " \n\t\r".as_bytes()[random.usize(..4)];
        let border = WINDOW.saturating_sub(random.usize(..=text.len())) + WINDOW * random.usize(..2);
        let mut bytes = if random.bool() { "\u{feff}".as_bytes().to_vec() } else { Vec::new() };
        for (number, one) in text.split_inclusive('\n').enumerate() {
            if number == line {
                bytes.extend(vec![blanks; border]);
            }
            bytes.extend(one.as_bytes());
        }
        Self { bytes, options: &[], expected: Expected::Verdict(dump.verdict.clone()) }
    }
}

/// Whether no verdict may come of it: a brace or bracket begins it, but it is no JSON object.
fn begins_like_json_but_is_none(text: &[u8]) -> bool {
    let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
    match text.iter().find(|byte| !b" \t\n\r".contains(byte)) {
        Some(b'[') => true,
        Some(b'{') => !std::str::from_utf8(text).is_ok_and(is_json),
        _ => false,
    }
}

/// The text of a dump in which some values were put into the place of others.
fn broken_structure(dump: &Dump, random: &mut Rng) -> String {
    let mut value = dump.value.clone();
    let changes = if random.u8(..) < 100 { 0 } else { random.usize(1..4) };
    for _ in 0..changes {
        let donor = part_of(&dump.value, random).clone();
        break_value(&mut value, donor, random);
    }
    let form = FORMS[random.usize(..FORMS.len())];
    let text = form.text(&value);
    if !text.contains(RAW) {
        return text;
    }
    // Inside a key, it only makes the key longer.
    let longer = "x".repeat([1, 300, 1 << 20][random.usize(..3)]);
    text.replace(&format!("\"{RAW}\""), &raw(random)).replace(RAW, &longer)
}

/// Goes down to some part of a value and changes it.
fn break_value(value: &mut Value, donor: Value, random: &mut Rng) {
    let size = match &*value {
        Value::Object(map) => map.len(),
        Value::Array(list) => list.len(),
        _ => 0,
    };
    if size == 0 || random.u8(..) < 30 {
        *value = if random.bool() { Value::from(RAW) } else { donor };
        return;
    }
    let place = random.usize(..size);
    match value {
        Value::Array(list) => match random.u8(..16) {
            0 => _ = list.remove(place),
            1 => list.insert(place, donor),
            _ => break_value(&mut list[place], donor, random),
        },
        Value::Object(map) => {
            let Some(key) = map.keys().nth(place).cloned() else { return };
            match random.u8(..16) {
                0 => _ = map.remove(&key),
                1 => _ = map.insert(format!("{key}{}", WORDS[random.usize(..WORDS.len())]), donor),
                2 => _ = map.insert(format!("{key}{RAW}"), donor),
                _ => {
                    if let Some(value) = map.get_mut(&key) {
                        break_value(value, donor, random);
                    }
                }
            }
        }
        _ => {}
    }
}

/// Some part of a value, at any depth.
fn part_of<'v>(value: &'v Value, random: &mut Rng) -> &'v Value {
    let parts: Vec<&Value> = match value {
        Value::Object(map) => map.values().collect(),
        Value::Array(list) => list.iter().collect(),
        _ => Vec::new(),
    };
    if parts.is_empty() || random.u8(..) < 60 {
        value
    } else {
        part_of(parts[random.usize(..parts.len())], random)
    }
}

/// A text for the place of a value: a word, or something very long or very deep.
fn raw(random: &mut Rng) -> String {
    let depth = [10, 127, 128, 129, 1000, 100_000][random.usize(..6)];
    match random.u8(..32) {
        0 => format!("{}{}", "[".repeat(depth), "]".repeat(depth)),
        1 => format!("{}0{}", "{\"a\":".repeat(depth), "}".repeat(depth)),
        2 => "[".repeat(depth),
        3 => format!("\"{}\"", "x".repeat(1 << 20)),
        4 => format!("\"{}\"", "\\ud83d\\ude00".repeat(1 << 16)),
        5 => "9".repeat(random.usize(1..2000)),
        6 => format!("0.{}1", "0".repeat(random.usize(1..2000))),
        7 => format!("\"{}\"", "9".repeat(random.usize(1..2000))),
        8 => format!("\"1e{}\"", random.u32(..)),
        9 => format!("[{}]", vec!["{}"; 1 << 14].join(",")),
        _ => WORDS[random.usize(..WORDS.len())].to_owned(),
    }
}

/// Changes the text at some place.
fn break_text(text: &mut Vec<u8>, dumps: &[Dump], random: &mut Rng) {
    let length = text.len();
    let (one, other) = (random.usize(..=length), random.usize(..=length));
    let (from, to) = (one.min(other), one.max(other));
    // Short pieces more often than long ones.
    let to = if random.bool() { to } else { to.min(from + 20) };
    match random.u8(..14) {
        0 => text.truncate(from),
        1 if from < length => text[from] ^= 1 << random.u8(..8),
        2 if from < length => text[from] = random.u8(..),
        3 => _ = text.drain(from..to),
        4 => {
            let piece = text[from..to].to_vec();
            text.splice(other..other, piece);
        }
        5 => {
            let donor = FORMS[random.usize(..FORMS.len())].text(&dumps[random.usize(..dumps.len())].value);
            let begin = random.usize(..donor.len());
            let piece = &donor.as_bytes()[begin..random.usize(begin..donor.len())];
            text.splice(from..to, piece.iter().copied());
        }
        6 => _ = text.splice(from..from, raw(random).into_bytes()),
        7 => _ = text.splice(from..from, NO_UTF8[random.usize(..NO_UTF8.len())].iter().copied()),
        8 => break_lines(text, random),
        9 => _ = text.splice(..0, *b"\xef\xbb\xbf"),
        10 => _ = text.splice(from..to, vec![0; to - from]),
        _ => _ = text.splice(from..from, WORDS[random.usize(..WORDS.len())].bytes()),
    }
}

/// Doubles a line, drops one or puts one elsewhere; so come keys that stand twice.
fn break_lines(text: &mut Vec<u8>, random: &mut Rng) {
    let mut lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
    if lines.is_empty() {
        return;
    }
    let (from, to) = (random.usize(..lines.len()), random.usize(..lines.len()));
    match random.u8(..4) {
        0 => lines.insert(from, lines[from]),
        1 => lines.insert(to, lines[from]),
        2 => _ = lines.remove(from),
        _ => lines.swap(from, to),
    }
    *text = lines.concat();
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use fastrand::Rng;

    use super::super::dumps;
    use super::{Expected, Input};

    #[test]
    fn the_same_number_makes_the_same_input_and_others_make_others() {
        let dumps = dumps::all();
        let input = |seed| Input::new(&dumps, &mut Rng::with_seed(seed));
        let mut seen = HashSet::new();
        let (mut no_json, mut harmless) = (0, 0);
        for seed in 0..300 {
            let (one, again) = (input(seed), input(seed));
            assert_eq!((&one.bytes, one.options), (&again.bytes, again.options));
            match one.expected {
                Expected::NoVerdict => no_json += 1,
                Expected::Verdict(_) => harmless += 1,
                Expected::Anything => {}
            }
            seen.insert(one.bytes);
        }
        assert!(seen.len() > 200 && no_json > 30 && harmless > 5, "{} {no_json} {harmless}", seen.len());
    }
}

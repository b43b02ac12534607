//! How dumps are broken: in their structure before they are written down, and in their text.

use serde_json::Value;

use super::grammar::is_json;
use super::sound::{Dump, FORMS, Form};
use super::{OPTIONS, Options};
use crate::choices::Choices;

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
    pub(super) options: Options,
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
    pub(super) fn new(dumps: &[Dump], choices: &mut Choices<'_>) -> Self {
        let dump = &dumps[choices.below(dumps.len())];
        if choices.byte() >= 240 {
            return Self::harmless(dump, choices);
        }
        let mut text = broken_structure(dump, choices).into_bytes();
        let changes = if choices.byte() < 64 { 0 } else { 1 + choices.below(3) };
        for _ in 0..changes {
            break_text(&mut text, dumps, choices);
        }
        if choices.byte() >= 252 {
            let border = WINDOW.saturating_sub(choices.below(text.len() + 1));
            text = [vec![b' '; border], text].concat();
        }
        Self::broken(text, *choices.one_of(&OPTIONS))
    }

    /// The rest of the bytes as they are.
    pub(super) fn as_it_is(mut choices: Choices<'_>) -> Self {
        let options = *choices.one_of(&OPTIONS);
        Self::broken(choices.rest().to_vec(), options)
    }

    fn broken(bytes: Vec<u8>, options: Options) -> Self {
        let no_json = begins_like_json_but_is_none(&bytes);
        Self { bytes, options, expected: if no_json { Expected::NoVerdict } else { Expected::Anything } }
    }

    /// A text of which nothing but the form of its answer is known.
    #[cfg(test)]
    pub(super) fn sound(bytes: Vec<u8>) -> Self {
        Self { bytes, options: OPTIONS[0], expected: Expected::Anything }
    }

    /// A whole dump with blanks where they mean nothing, enough of them that the reader meets a border somewhere.
    fn harmless(dump: &Dump, choices: &mut Choices<'_>) -> Self {
        let text = Form::Pretty.text(&dump.value);
        let line = choices.below(text.lines().count());
        let blanks = " \n\t\r".as_bytes()[choices.below(4)];
        let border = WINDOW.saturating_sub(choices.below(text.len() + 1)) + WINDOW * choices.below(2);
        let mut bytes = if choices.coin() { "\u{feff}".as_bytes().to_vec() } else { Vec::new() };
        for (number, one) in text.split_inclusive('\n').enumerate() {
            if number == line {
                bytes.extend(vec![blanks; border]);
            }
            bytes.extend(one.as_bytes());
        }
        Self { bytes, options: OPTIONS[0], expected: Expected::Verdict(dump.verdict.clone()) }
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
fn broken_structure(dump: &Dump, choices: &mut Choices<'_>) -> String {
    let mut value = dump.value.clone();
    let changes = if choices.byte() < 100 { 0 } else { 1 + choices.below(3) };
    for _ in 0..changes {
        let donor = part_of(&dump.value, choices).clone();
        break_value(&mut value, donor, choices);
    }
    let form = choices.one_of(&FORMS);
    let text = form.text(&value);
    if !text.contains(RAW) {
        return text;
    }
    // Inside a key, it only makes the key longer.
    let longer = "x".repeat([1, 300, 1 << 20][choices.below(3)]);
    text.replace(&format!("\"{RAW}\""), &raw(choices)).replace(RAW, &longer)
}

/// Goes down to some part of a value and changes it.
fn break_value(value: &mut Value, donor: Value, choices: &mut Choices<'_>) {
    let size = match &*value {
        Value::Object(map) => map.len(),
        Value::Array(list) => list.len(),
        _ => 0,
    };
    if size == 0 || choices.byte() < 30 {
        *value = if choices.coin() { Value::from(RAW) } else { donor };
        return;
    }
    let place = choices.below(size);
    match value {
        Value::Array(list) => match choices.byte() % 16 {
            0 => _ = list.remove(place),
            1 => list.insert(place, donor),
            _ => break_value(&mut list[place], donor, choices),
        },
        Value::Object(map) => {
            let Some(key) = map.keys().nth(place).cloned() else { return };
            match choices.byte() % 16 {
                0 => _ = map.remove(&key),
                1 => _ = map.insert(format!("{key}{}", choices.one_of(WORDS)), donor),
                2 => _ = map.insert(format!("{key}{RAW}"), donor),
                _ => {
                    if let Some(value) = map.get_mut(&key) {
                        break_value(value, donor, choices);
                    }
                }
            }
        }
        _ => {}
    }
}

/// Some part of a value, at any depth.
fn part_of<'v>(value: &'v Value, choices: &mut Choices<'_>) -> &'v Value {
    let parts: Vec<&Value> = match value {
        Value::Object(map) => map.values().collect(),
        Value::Array(list) => list.iter().collect(),
        _ => Vec::new(),
    };
    if parts.is_empty() || choices.byte() < 60 {
        value
    } else {
        part_of(parts[choices.below(parts.len())], choices)
    }
}

/// A text for the place of a value: a word, or something very long or very deep.
fn raw(choices: &mut Choices<'_>) -> String {
    let depth = [10, 127, 128, 129, 1000, 100_000][choices.below(6)];
    match choices.byte() % 32 {
        0 => format!("{}{}", "[".repeat(depth), "]".repeat(depth)),
        1 => format!("{}0{}", "{\"a\":".repeat(depth), "}".repeat(depth)),
        2 => "[".repeat(depth),
        3 => format!("\"{}\"", "x".repeat(1 << 20)),
        4 => format!("\"{}\"", "\\ud83d\\ude00".repeat(1 << 16)),
        5 => "9".repeat(1 + choices.below(1999)),
        6 => format!("0.{}1", "0".repeat(1 + choices.below(1999))),
        7 => format!("\"{}\"", "9".repeat(1 + choices.below(1999))),
        8 => format!("\"1e{}\"", choices.number() >> 32),
        9 => format!("[{}]", vec!["{}"; 1 << 14].join(",")),
        _ => (*choices.one_of(WORDS)).to_owned(),
    }
}

/// Changes the text at some place.
fn break_text(text: &mut Vec<u8>, dumps: &[Dump], choices: &mut Choices<'_>) {
    let length = text.len();
    let (one, other) = (choices.below(length + 1), choices.below(length + 1));
    let (from, to) = (one.min(other), one.max(other));
    // Short pieces more often than long ones.
    let to = if choices.coin() { to } else { to.min(from + 20) };
    match choices.byte() % 14 {
        0 => text.truncate(from),
        1 if from < length => text[from] ^= 1 << (choices.byte() % 8),
        2 if from < length => text[from] = choices.byte(),
        3 => _ = text.drain(from..to),
        4 => {
            let piece = text[from..to].to_vec();
            text.splice(other..other, piece);
        }
        5 => {
            let donor = choices.one_of(&FORMS).text(&dumps[choices.below(dumps.len())].value);
            let begin = choices.below(donor.len());
            let piece = &donor.as_bytes()[begin..begin + choices.below(donor.len() - begin)];
            text.splice(from..to, piece.iter().copied());
        }
        6 => _ = text.splice(from..from, raw(choices).into_bytes()),
        7 => _ = text.splice(from..from, choices.one_of(NO_UTF8).iter().copied()),
        8 => break_lines(text, choices),
        9 => _ = text.splice(..0, *b"\xef\xbb\xbf"),
        10 => _ = text.splice(from..to, vec![0; to - from]),
        _ => _ = text.splice(from..from, choices.one_of(WORDS).bytes()),
    }
}

/// Doubles a line, drops one or puts one elsewhere; so come keys that stand twice.
fn break_lines(text: &mut Vec<u8>, choices: &mut Choices<'_>) {
    let mut lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
    if lines.is_empty() {
        return;
    }
    let (from, to) = (choices.below(lines.len()), choices.below(lines.len()));
    match choices.byte() % 4 {
        0 => lines.insert(from, lines[from]),
        1 => lines.insert(to, lines[from]),
        2 => _ = lines.remove(from),
        _ => lines.swap(from, to),
    }
    *text = lines.concat();
}

#[cfg(test)]
mod tests {
    use super::super::sound;
    use super::{Expected, Input};
    use crate::choices::Choices;

    #[test]
    fn decisions_lead_to_inputs_of_every_sort() {
        let dumps = sound::all();
        let (mut no_json, mut harmless) = (0, 0);
        for seed in 0..300_u64 {
            // Decisions without a pattern.
            let bytes: Vec<u8> = (1..200_u64)
                .map(|place| ((seed << 8 | place).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40).to_le_bytes()[0])
                .collect();
            match Input::new(&dumps, &mut Choices::new(&bytes)).expected {
                Expected::NoVerdict => no_json += 1,
                Expected::Verdict(_) => harmless += 1,
                Expected::Anything => {}
            }
        }
        assert!(no_json > 30 && harmless > 5, "{no_json} {harmless}");
    }
}

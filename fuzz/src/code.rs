//! Code that programs bring to the simulated driver: PTX, cubins, fat binaries.

use cuda::fuzzing::{self, Declared, Entry};

use crate::choices::Choices;

/// Architectures that code is made for, and of cards.
const ARCHITECTURES: [u32; 8] = [50, 75, 80, 86, 90, 100, 103, 120];
/// Types of PTX with their bytes.
const TYPES: [(&str, usize); 8] = [
    (".b8", 1),
    (".u16", 2),
    (".f32", 4),
    (".s64", 8),
    (".v2 .f32", 8),
    (".v4.b32", 16),
    (".b128", 16),
    (".f16x2", 4),
];

/// Reads PTX: what a program declares must be found whatever stands between; anything else may be refused.
///
/// # Panics
/// Where an answer is wrong.
pub fn ptx(data: &[u8]) {
    let mut choices = Choices::new(data);
    let sort = choices.byte();
    if sort < 64 {
        let _ = fuzzing::ptx(&String::from_utf8_lossy(choices.rest()));
        return;
    }
    let (text, declared) = program(&mut choices);
    if sort < 128 {
        let mut text = text.into_bytes();
        choices.damage(&mut text);
        let _ = fuzzing::ptx(&String::from_utf8_lossy(&text));
        return;
    }
    assert_eq!(fuzzing::ptx(&text).as_ref(), Ok(&declared), "{text}");
}

/// Adds to the end of a text.
fn push(text: &mut String, more: std::fmt::Arguments<'_>) {
    use std::fmt::Write as _;
    text.write_fmt(more).unwrap_or_else(|_| unreachable!("a string takes all that is written"));
}

/// What may stand between two tokens.
fn blank(choices: &mut Choices<'_>) -> &'static str {
    const BLANKS: [&str; 6] = [" ", "\n", "\t", " // } .entry k {\n", " /* .global .b8 x; { */ ", "\r\n"];
    BLANKS[choices.below(BLANKS.len())]
}

/// A program and what it declares.
fn program(choices: &mut Choices<'_>) -> (String, Declared) {
    let architecture = *choices.one_of(&ARCHITECTURES);
    let tail = *choices.one_of(&["", "a", ", debug"]);
    let mut text =
        format!(".version{}8.8\n.target sm_{architecture}{tail}{}", blank(choices), blank(choices));
    let mut declared = Declared { architecture, ..Declared::default() };
    for number in 0..choices.below(4) {
        let (kind, bytes) = *choices.one_of(&TYPES);
        let count = choices.below(300);
        let space = *choices.one_of(&[".global", ".visible .const", ".extern .global"]);
        push(
            &mut text,
            format_args!("{space} .align 4 {kind}{}v{number}[{count}];{}", blank(choices), blank(choices)),
        );
        declared.variables.push((format!("v{number}"), (bytes * count) as u64));
    }
    for number in 0..choices.below(4) {
        let mut entry = Entry { name: format!("k{number}"), max_threads: 1024, ..Entry::default() };
        push(&mut text, format_args!(".visible .entry{}k{number}(", blank(choices)));
        let mut offset = 0_usize;
        for place in 0..choices.below(5) {
            let (kind, bytes) = *choices.one_of(&TYPES);
            let comma = if place > 0 { "," } else { "" };
            push(&mut text, format_args!("{comma}{}.param {kind} p{place}", blank(choices)));
            offset = offset.next_multiple_of(bytes);
            entry.parameters.push((offset, bytes));
            offset += bytes;
        }
        text += ")";
        if choices.coin() {
            let threads = 1 + u32::from(choices.byte() % 32);
            push(&mut text, format_args!(" .maxntid {threads}, 2, 1{}", blank(choices)));
            entry.max_threads = threads * 2;
        }
        text += "{";
        if choices.coin() {
            entry.shared = u32::from(choices.byte()) * 4;
            push(&mut text, format_args!(" .shared .align 4 .b32 s[{}]; ", entry.shared / 4));
        }
        push(&mut text, format_args!("{{ ret; }}{}}}{}", blank(choices), blank(choices)));
        declared.entries.push(entry);
    }
    (text, declared)
}

/// Reads a cubin: one of real ones that is damaged, or bytes as they are. What is found lies inside it.
///
/// # Panics
/// Where an answer is wrong.
pub fn cubin(data: &[u8]) {
    let mut choices = Choices::new(data);
    let bytes = match choices.byte() {
        ..16 => choices.rest().to_vec(),
        sort => {
            let mut bytes = CUBINS[usize::from(sort) % CUBINS.len()].to_vec();
            for _ in 0..=choices.byte() % 4 {
                overwrite(&mut bytes, &mut choices);
            }
            choices.damage(&mut bytes);
            bytes
        }
    };
    if let Ok(found) = fuzzing::cubin(&bytes) {
        assert!(found.entries.len() + found.variables.len() <= bytes.len(), "more names than bytes");
    }
    if let Some(Ok(length)) = fuzzing::cubin_length(&bytes) {
        assert!(length < 1 << 41);
    }
}

const CUBINS: [&[u8]; 2] = [
    include_bytes!("../../simgpu/cuda/tests/images/scale-sm80-abi7.cubin"),
    include_bytes!("../../simgpu/cuda/tests/images/scale-sm80-abi8.cubin"),
];

/// Puts a number into the place of another: lengths and offsets are what such formats are made of.
fn overwrite(bytes: &mut [u8], choices: &mut Choices<'_>) {
    let place = choices.below(bytes.len()) & !1;
    let number = match choices.byte() % 4 {
        0 => u64::from(choices.byte()),
        1 => u64::MAX - u64::from(choices.byte()),
        2 => 1 << (choices.byte() % 64),
        _ => choices.number(),
    };
    let width = *choices.one_of(&[1, 2, 4, 8]);
    let end = bytes.len().min(place + width);
    let number = number.to_le_bytes();
    bytes[place..end].copy_from_slice(&number[..end - place]);
}

/// Reads a fat binary: of its parts the right one must be chosen; a damaged one may be refused.
///
/// # Panics
/// Where an answer is wrong.
pub fn fatbin(data: &[u8]) {
    let mut choices = Choices::new(data);
    let sort = choices.byte();
    let card = *choices.one_of(&ARCHITECTURES);
    if sort < 32 {
        let _ = fuzzing::fatbin(choices.rest(), card);
        return;
    }
    let texts: Vec<(u32, u16)> = (0..choices.below(5))
        .map(|_| (*choices.one_of(&ARCHITECTURES), u16::from(choices.byte() % 3)))
        .collect();
    let mut bytes =
        [&0xBA55_ED50_u32.to_le_bytes()[..], &1_u16.to_le_bytes(), &16_u16.to_le_bytes()].concat();
    let parts: Vec<u8> = texts.iter().flat_map(|&(architecture, pad)| part(architecture, pad)).collect();
    bytes.extend((parts.len() as u64).to_le_bytes());
    bytes.extend(parts);
    if sort < 160 {
        for _ in 0..choices.byte() % 3 {
            overwrite(&mut bytes, &mut choices);
        }
        choices.damage(&mut bytes);
        let _ = fuzzing::fatbin(&bytes, card);
        return;
    }
    let best = texts.iter().map(|text| text.0).filter(|&architecture| architecture <= card).max();
    assert_eq!(
        fuzzing::fatbin(&bytes, card).ok().map(|found| found.architecture),
        best,
        "for {card} of {texts:?}"
    );
    assert_eq!(fuzzing::fatbin_length(&bytes), Some(Ok(bytes.len())));
}

/// A part with PTX for an architecture.
fn part(architecture: u32, pad: u16) -> Vec<u8> {
    let text = format!(".version 8.8 .target sm_{architecture} .entry k() {{ ret; }}\0");
    let header = 64 + 8 * usize::from(pad);
    let mut part = vec![0; header];
    part[..2].copy_from_slice(&1_u16.to_le_bytes());
    part[2..4].copy_from_slice(&0x0101_u16.to_le_bytes());
    part[4..8].copy_from_slice(&(64 + 8 * u32::from(pad)).to_le_bytes());
    part[8..16].copy_from_slice(&(text.len() as u64).to_le_bytes());
    part[28..32].copy_from_slice(&architecture.to_le_bytes());
    part.extend(text.into_bytes());
    part
}

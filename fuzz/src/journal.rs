//! Journals of the agent: lines with checksums, in which the records may be anything.

use gpupool_agent::fuzzing;

use crate::choices::Choices;

/// Records as agents write them.
const RECORDS: &str = include_str!("journal/records");

/// Reads a journal that somebody damaged: before the checksums were written, or after.
///
/// # Panics
/// Where an answer is wrong.
pub fn journal(data: &[u8]) {
    let mut choices = Choices::new(data);
    let content = if choices.byte() < 32 { choices.rest().to_vec() } else { damaged(&mut choices) };
    let found = fuzzing::journal(&content);
    let (read, rest) = content.split_at(found.whole);
    let lines: Vec<&[u8]> = read.split_inclusive(|byte| *byte == b'\n').collect();
    for line in &lines {
        assert!(has_its_checksum(line), "a record whose checksum is wrong");
    }
    match found.unknown {
        None => assert_eq!(found.records.len(), lines.len(), "every whole record is known"),
        Some(line) => assert!(found.records.len() < line, "nothing is read behind what means nothing"),
    }
    // What was left out is not whole, or was written together with something that is not.
    let mut left = rest.split_inclusive(|byte| *byte == b'\n');
    let broken = left.find(|line| !has_its_checksum(line) || !line.ends_with(b" \n"));
    assert!(broken.is_none_or(|line| !has_its_checksum(line)), "a whole record was left out");
    // What was understood means the same when it is written again.
    let again: Vec<u8> = found.records.iter().flat_map(|record| line(record.as_bytes())).collect();
    let second = fuzzing::journal(&again);
    assert_eq!((second.whole, second.records), (again.len(), found.records));
}

fn damaged(choices: &mut Choices<'_>) -> Vec<u8> {
    let records: Vec<&str> = RECORDS.lines().collect();
    let mut content = Vec::new();
    for _ in 0..=choices.byte() % 6 {
        let mut record = choices.one_of(&records).as_bytes().to_vec();
        choices.damage(&mut record);
        record.retain(|byte| *byte != b'\n');
        content.extend(line(&record));
    }
    choices.damage(&mut content);
    content
}

fn line(record: &[u8]) -> Vec<u8> {
    [format!("{:08x} ", crc32fast::hash(record)).as_bytes(), record, b"\n"].concat()
}

fn has_its_checksum(line: &[u8]) -> bool {
    let Some((digits, rest)) = line.split_at_checked(9) else { return false };
    let Some(record) = rest.strip_suffix(b"\n") else { return false };
    let digits = std::str::from_utf8(digits).ok().and_then(|digits| digits.strip_suffix(' '));
    digits.and_then(|digits| u32::from_str_radix(digits, 16).ok()) == Some(crc32fast::hash(record))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Else everything is refused at its first record, and nothing is tried.
    #[test]
    fn the_records_that_are_damaged_are_sound() {
        let content: Vec<u8> = RECORDS.lines().flat_map(|record| line(record.as_bytes())).collect();
        assert_eq!(fuzzing::journal(&content).whole, content.len());
    }
}

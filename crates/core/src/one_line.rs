//! Foreign text inside a sentence of ours: one line, of bounded length, with nothing in it that a terminal obeys.

/// The text with control, invisible and line-breaking characters escaped, cut after `most` characters.
///
/// What was cut is said: `…(1048576 bytes)`.
pub fn one_line(text: &str, most: usize) -> String {
    let mut shown = String::new();
    for (count, character) in text.chars().enumerate() {
        if count == most {
            return format!("{shown}…({} bytes)", text.len());
        }
        match character {
            // Harmless in a sentence; escape_debug would double them.
            '"' | '\'' | '\\' => shown.push(character),
            _ => shown.extend(character.escape_debug()),
        }
    }
    shown
}

/// The same for a name that must stay one word: blanks are escaped too.
pub fn one_word(text: &str, most: usize) -> String {
    one_line(text, most)
        .chars()
        .map(|character| {
            if character.is_whitespace() {
                character.escape_unicode().to_string()
            } else {
                character.to_string()
            }
        })
        .collect()
}

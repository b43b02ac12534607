//! Text in fixed fields: UTF-8, padded with NUL bytes.

/// Copies as much of `text` into a field as fits, never splitting a character.
pub(crate) fn pack<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [0; N];
    let mut end = text.len().min(N);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    for (to, from) in field.iter_mut().zip(text.as_bytes().iter().take(end)) {
        *to = *from;
    }
    field
}

/// The bytes of a field up to its first NUL.
pub(crate) fn bytes(field: &[u8]) -> &[u8] {
    field.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// The text of a field up to its first NUL; what is not UTF-8 ends it early.
pub(crate) fn unpack(field: &[u8]) -> &str {
    let bytes = bytes(field);
    match core::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(bad) => bytes
            .get(..bad.valid_up_to())
            .and_then(|good| core::str::from_utf8(good).ok())
            .unwrap_or_default(),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{pack, unpack};

    #[test]
    fn text_comes_back_as_it_was() {
        assert_eq!(unpack(&pack::<8>("abc")), "abc");
        assert_eq!(unpack(&pack::<3>("abc")), "abc");
        assert_eq!(unpack(&pack::<0>("abc")), "");
    }

    #[test]
    fn a_character_is_never_split() {
        assert_eq!(unpack(&pack::<3>("aéé")), "aé");
    }

    #[test]
    fn rubbish_ends_the_text_early() {
        assert_eq!(unpack(&[b'a', 0xff, b'b']), "a");
    }
}

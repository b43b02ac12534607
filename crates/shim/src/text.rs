//! Lines of text without an allocator.

/// Longest line, in bytes: a refusal's sentence and what is said around it.
const ROOM: usize = 640;

/// Room for one line; what does not fit is left out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text {
    bytes: [u8; ROOM],
    length: usize,
}

impl Text {
    /// An empty line.
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; ROOM], length: 0 }
    }

    /// The text so far.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    /// Adds bytes.
    #[inline(never)]
    pub(crate) fn add(&mut self, bytes: &[u8]) -> &mut Self {
        for &byte in bytes {
            self.add_byte(byte);
        }
        self
    }

    fn add_byte(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.length) {
            *place = byte;
            self.length += 1;
        }
    }

    /// Adds a number in decimal.
    pub(crate) fn add_number(&mut self, number: u64) -> &mut Self {
        let mut digits = [b'0'; 20];
        let mut rest = number;
        let mut first = digits.len();
        for (place, digit) in digits.iter_mut().enumerate().rev() {
            *digit += u8::try_from(rest % 10).unwrap_or(0);
            rest /= 10;
            first = place;
            if rest == 0 {
                break;
            }
        }
        self.add(digits.get(first..).unwrap_or_default())
    }

    /// Adds the low `digits` hexadecimal digits of a number.
    #[inline(never)]
    pub(crate) fn add_hex(&mut self, number: u32, digits: u32, alphabet: &[u8; 16]) -> &mut Self {
        for place in (0..digits).rev() {
            let nibble = (number >> (place * 4)) & 15;
            self.add_byte(alphabet.get(nibble as usize).copied().unwrap_or(b'0'));
        }
        self
    }

    /// Adds a card's uuid as NVML and `CUDA_VISIBLE_DEVICES` write it: `GPU-8-4-4-4-12`.
    #[inline(never)]
    pub(crate) fn add_uuid(&mut self, uuid: &[u8; 16]) -> &mut Self {
        self.add(b"GPU-");
        for (place, &byte) in uuid.iter().enumerate() {
            if matches!(place, 4 | 6 | 8 | 10) {
                self.add_byte(b'-');
            }
            self.add_hex(u32::from(byte), 2, LOWER);
        }
        self
    }
}

/// Digits as uuids have them.
pub(crate) const LOWER: &[u8; 16] = b"0123456789abcdef";
/// Digits as bus ids have them.
pub(crate) const UPPER: &[u8; 16] = b"0123456789ABCDEF";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_decimal() {
        for number in [0, 7, 10, 905, u64::MAX] {
            assert_eq!(Text::new().add_number(number).as_bytes(), number.to_string().as_bytes());
        }
    }

    #[test]
    fn what_does_not_fit_is_left_out() {
        let mut text = Text::new();
        text.add(&[b'a'; 639]).add(b"bc").add(b"d");
        assert_eq!(text.as_bytes().len(), 640);
        assert_eq!(text.as_bytes().last(), Some(&b'b'));
    }

    #[test]
    fn a_uuid_is_written_as_the_tools_write_it() {
        let uuid = [0x0a, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0xff];
        let mut text = Text::new();
        assert_eq!(text.add_uuid(&uuid).as_bytes(), b"GPU-0a010203-0405-0607-0809-0a0b0c0d0eff");
    }
}

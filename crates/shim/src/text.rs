//! Lines of text without an allocator.

/// Room for one line; what does not fit is left out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> Text<N> {
    /// An empty line.
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; N], length: 0 }
    }

    /// The text so far.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    /// Adds bytes.
    pub(crate) fn add(mut self, bytes: &[u8]) -> Self {
        if let Some(room) = self.bytes.get_mut(self.length..) {
            for (to, from) in room.iter_mut().zip(bytes) {
                *to = *from;
                self.length += 1;
            }
        }
        self
    }

    /// Adds a number in decimal.
    pub(crate) fn add_number(self, number: u64) -> Self {
        let mut digits = [0_u8; 20];
        let mut rest = number;
        let mut count = 0;
        for digit in digits.iter_mut().rev() {
            *digit = b'0' + u8::try_from(rest % 10).unwrap_or(0);
            rest /= 10;
            count += 1;
            if rest == 0 {
                break;
            }
        }
        self.add(digits.get(20 - count..).unwrap_or_default())
    }

    /// Adds the low `digits` hexadecimal digits of a number.
    pub(crate) fn add_hex(mut self, number: u32, digits: u32, alphabet: &[u8; 16]) -> Self {
        for place in (0..digits).rev() {
            let nibble = (number >> (place * 4)) & 15;
            let digit = alphabet.get(nibble as usize).copied().unwrap_or(b'0');
            self = self.add(&[digit]);
        }
        self
    }
}

/// Digits as uuids have them.
pub(crate) const LOWER: &[u8; 16] = b"0123456789abcdef";
/// Digits as bus ids have them.
pub(crate) const UPPER: &[u8; 16] = b"0123456789ABCDEF";

/// A card's uuid as NVML and `CUDA_VISIBLE_DEVICES` write it: `GPU-8-4-4-4-12`.
#[inline(never)]
pub(crate) fn add_uuid<const N: usize>(text: Text<N>, uuid: &[u8; 16]) -> Text<N> {
    let mut text = text.add(b"GPU-");
    for (place, &byte) in uuid.iter().enumerate() {
        if matches!(place, 4 | 6 | 8 | 10) {
            text = text.add(b"-");
        }
        text = text.add_hex(u32::from(byte), 2, LOWER);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_decimal() {
        for number in [0, 7, 10, 905, u64::MAX] {
            let text = Text::<24>::new().add_number(number);
            assert_eq!(text.as_bytes(), number.to_string().as_bytes());
        }
    }

    #[test]
    fn what_does_not_fit_is_left_out() {
        assert_eq!(Text::<3>::new().add(b"ab").add(b"cd").add(b"e").as_bytes(), b"abc");
    }

    #[test]
    fn a_uuid_is_written_as_the_tools_write_it() {
        let uuid = [0x0a, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0xff];
        let text = add_uuid(Text::<64>::new(), &uuid);
        assert_eq!(text.as_bytes(), b"GPU-0a010203-0405-0607-0809-0a0b0c0d0eff");
    }
}

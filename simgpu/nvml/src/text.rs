//! Strings into a caller's buffer, strings out of a caller's pointer.

use std::ffi::{CStr, c_char};

use crate::return_code::ReturnCode;

/// Copies `text` and a closing zero; nothing is written when they do not fit.
///
/// # Safety
/// `buffer` is null or has room for `length` bytes.
pub(crate) unsafe fn put(text: &str, buffer: *mut c_char, length: u32) -> Result<(), ReturnCode> {
    if buffer.is_null() {
        return Err(ReturnCode::InvalidArgument);
    }
    if text.len() >= length as usize {
        return Err(ReturnCode::InsufficientSize);
    }
    // SAFETY: the buffer has room for `length` bytes, which is more than the text's; ours cannot overlap it.
    unsafe {
        buffer.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len());
        buffer.add(text.len()).write(0);
    }
    Ok(())
}

/// The string behind a caller's pointer.
///
/// # Safety
/// `text` is null or points at a string that ends in zero and stays as it is during the call.
pub(crate) unsafe fn get<'a>(text: *const c_char) -> Result<&'a str, ReturnCode> {
    if text.is_null() {
        return Err(ReturnCode::InvalidArgument);
    }
    // SAFETY: not null, and the caller's promise is ours.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| ReturnCode::InvalidArgument)
}

/// A fixed field of a structure; what does not fit is cut, and the last byte is always zero.
pub(crate) fn field<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [0; N];
    let length = text.len().min(N.saturating_sub(1));
    field[..length].copy_from_slice(&text.as_bytes()[..length]);
    field
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_that_is_a_byte_too_short_is_left_alone() {
        let mut buffer = [7 as c_char; 4];
        // SAFETY: the buffer has at least the length that is given.
        unsafe {
            assert_eq!(put("four", buffer.as_mut_ptr(), 4), Err(ReturnCode::InsufficientSize));
            assert_eq!(buffer, [7; 4]);
            assert_eq!(put("two", buffer.as_mut_ptr(), 4), Ok(()));
            assert_eq!(get(buffer.as_ptr()), Ok("two"));
            assert_eq!(put("", std::ptr::null_mut(), 4), Err(ReturnCode::InvalidArgument));
        }
    }

    #[test]
    fn a_field_always_ends_in_zero() {
        assert_eq!(field::<4>("abcdef"), *b"abc\0");
        assert_eq!(field::<4>("a"), *b"a\0\0\0");
    }
}

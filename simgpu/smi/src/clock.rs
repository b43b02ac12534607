//! The time of day, in the machine's own time zone.

/// Now, by a `strftime` pattern of less than 64 bytes of result; empty when the C library has no answer.
pub(crate) fn now(pattern: &std::ffi::CStr) -> String {
    // SAFETY: a null pointer asks for the return value alone.
    let seconds = unsafe { libc::time(std::ptr::null_mut()) };
    let mut parts = std::mem::MaybeUninit::<libc::tm>::uninit();
    let mut buffer = [0_u8; 64];
    // SAFETY: both pointers are to our own values; `strftime` gets a `tm` that `localtime_r` has filled, a pattern that
    // ends in zero, and the true size of the buffer.
    let length = unsafe {
        if libc::localtime_r(&raw const seconds, parts.as_mut_ptr()).is_null() {
            return String::new();
        }
        libc::strftime(buffer.as_mut_ptr().cast(), buffer.len(), pattern.as_ptr(), parts.as_ptr())
    };
    String::from_utf8_lossy(&buffer[..length]).into_owned()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_date_has_the_form_that_was_asked_for() {
        let date = super::now(c"%Y/%m/%d");
        let parts: Vec<&str> = date.split('/').collect();
        assert!(
            matches!(parts[..], [year, month, day] if year.len() == 4 && month.len() == 2 && day.len() == 2)
        );
    }
}

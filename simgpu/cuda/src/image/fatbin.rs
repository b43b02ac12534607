//! Fat binaries: several images of the same code, of which the driver takes the one that suits the card.

use std::{ffi::c_void, io::Read as _};

use crate::{
    error::{CuError, CuResult},
    image::{Image, cubin, ptx, runs_on},
};

/// First bytes of a fat binary, little endian 0xBA55ED50.
pub(super) const MAGIC: [u8; 4] = 0xBA55_ED50_u32.to_le_bytes();
/// First bytes of the wrapper that the compiler puts into programs: magic, version, address of the fat binary.
pub(super) const WRAPPER_MAGIC: [u8; 4] = 0x4662_43B1_u32.to_le_bytes();

/// Kinds of an entry.
const PTX: u16 = 1;
const CUBIN: u16 = 2;
/// Flags of an entry: how it is compressed.
const LZ4: u64 = 0x2000;
const ZSTD: u64 = 0x8000;
/// No image is larger than this, compressed or not.
const MOST: u64 = 1 << 31;

/// The fat binary inside a wrapper.
///
/// # Safety
/// `start` leads to a whole wrapper.
pub(super) unsafe fn wrapped(start: *const u8) -> *const c_void {
    // SAFETY: the address follows two words.
    unsafe { start.add(8).cast::<*const c_void>().read_unaligned() }
}

/// The length of the fat binary at `start`: its header says it.
///
/// # Safety
/// `start` leads to a whole fat binary.
pub(crate) unsafe fn length(start: *const u8) -> CuResult<usize> {
    // SAFETY: a fat binary has a whole header.
    let header = unsafe { std::slice::from_raw_parts(start, 16) };
    let length = long(header, 8).filter(|&length| length < MOST).ok_or(CuError::INVALID_IMAGE)?;
    usize::try_from(length)
        .map(|length| length + usize::from(short(header, 6).unwrap_or(16)))
        .map_err(|_| CuError::INVALID_IMAGE)
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_le_bytes)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes)
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes)
}

/// One image.
#[derive(Debug)]
struct Entry<'a> {
    kind: u16,
    architecture: u32,
    flags: u64,
    /// Bytes of the image once it is unpacked.
    unpacked: u64,
    payload: &'a [u8],
}

/// Bytes of an entry's header up to its flags.
const SHORTEST_HEADER: usize = 48;

impl<'a> Entry<'a> {
    /// The first entry of `bytes`, and what follows it.
    fn read(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        // A header has at least the fields that are read here; one of no length would be read for ever.
        let header = Some(word(bytes, 4)? as usize).filter(|&header| header >= SHORTEST_HEADER)?;
        let padded = usize::try_from(long(bytes, 8)?).ok()?;
        let packed = word(bytes, 16)? as usize;
        let (kind, architecture, flags) = (short(bytes, 0)?, word(bytes, 28)?, long(bytes, 40)?);
        let payload = bytes.get(header..header.checked_add(padded)?)?;
        let rest = &bytes[header + padded..];
        let unpacked = if header >= 64 { long(bytes, 56)? } else { 0 };
        let payload = if flags & (LZ4 | ZSTD) == 0 { payload } else { payload.get(..packed)? };
        Some((Self { kind, architecture, flags, unpacked, payload }, rest))
    }

    fn parse(&self) -> CuResult<Image> {
        let unpacked;
        let bytes = match self.flags & (LZ4 | ZSTD) {
            0 => self.payload,
            ZSTD => {
                unpacked = unpack(self.payload, self.unpacked).ok_or(CuError::INVALID_IMAGE)?;
                &unpacked
            }
            // Made by compilers before 12.8 only.
            _ => return Err(CuError::NO_BINARY_FOR_GPU),
        };
        if self.kind == CUBIN {
            return cubin::parse(bytes);
        }
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        ptx::parse(std::str::from_utf8(&bytes[..end]).map_err(|_| CuError::INVALID_PTX)?)
    }
}

fn unpack(packed: &[u8], size: u64) -> Option<Vec<u8>> {
    let decoder = ruzstd::decoding::StreamingDecoder::new(packed).ok()?;
    let mut unpacked = Vec::new();
    decoder.take(size.min(MOST)).read_to_end(&mut unpacked).ok()?;
    Some(unpacked)
}

/// Reads the image that suits a card of architecture `card`: machine code if there is some, the newest; else PTX.
pub(crate) fn parse(bytes: &[u8], card: u32) -> CuResult<Image> {
    let header = short(bytes, 6).map_or(16, usize::from);
    let mut rest = bytes.get(header..).ok_or(CuError::INVALID_IMAGE)?;
    let mut entries = Vec::new();
    while !rest.is_empty() {
        let (entry, next) = Entry::read(rest).ok_or(CuError::INVALID_IMAGE)?;
        entries.push(entry);
        rest = next;
    }
    let newest = |kind: u16, suits: &dyn Fn(u32) -> bool| {
        let suitable = entries.iter().filter(|entry| entry.kind == kind && suits(entry.architecture));
        suitable.max_by_key(|entry| entry.architecture)
    };
    let code = newest(CUBIN, &|code| runs_on(code, card));
    let chosen = code.or_else(|| newest(PTX, &|text| text <= card)).ok_or(CuError::NO_BINARY_FOR_GPU)?;
    chosen.parse()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_without_length_is_none() {
        let bytes = [&MAGIC[..], &[0; 76]].concat();
        assert_eq!(parse(&bytes, 80), Err(CuError::INVALID_IMAGE));
    }
}

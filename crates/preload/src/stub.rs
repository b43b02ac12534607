//! A shared library for 32-bit programs in which there is nothing, so that their loader finds what it is told to load.
//!
//! Written out by hand, since no compiler for that machine need be there: the header, three segments' entries (all of it
//! loaded, the dynamic section, a stack that is not executable) and the least of a dynamic section.

/// Where the parts begin.
const SEGMENTS: u32 = 52;
const DYNAMIC: u32 = SEGMENTS + 3 * 32;
const HASH: u32 = DYNAMIC + 7 * 8;
const SYMBOLS: u32 = HASH + 16;
const STRINGS: u32 = SYMBOLS + 16;

/// The names: the empty one, and the library's own.
const NAMES: [u8; 15] = *b"\0libgpupool.so\0";

/// Bytes of the file.
const LENGTH: usize = STRINGS as usize + NAMES.len();

/// The file.
pub(crate) const BYTES: [u8; LENGTH] = bytes();

/// Rights of a segment (the ELF specification).
const READ_WRITE: u32 = 6;

const fn bytes() -> [u8; LENGTH] {
    let length = STRINGS + 15;
    // 32 bits, the least significant byte first, version 1; then kind 3 (shared), machine 3 (i386).
    let header: [u32; 13] = [
        0x464c_457f,
        0x0001_0101,
        0,
        0,
        0x0003_0003,
        1,
        0,
        SEGMENTS,
        0,
        0,
        // Lengths of the header and of one entry; three entries; no sections.
        0x0020_0034,
        0x0000_0003,
        0,
    ];
    // Kind, offset, address, physical address, length in the file and in memory, rights, alignment.
    let segments: [u32; 24] = [
        1,
        0,
        0,
        0,
        length,
        length,
        READ_WRITE,
        0x1000,
        2,
        DYNAMIC,
        DYNAMIC,
        DYNAMIC,
        56,
        56,
        READ_WRITE,
        4,
        0x6474_e551,
        0,
        0,
        0,
        0,
        0,
        READ_WRITE,
        16,
    ];
    // Name, hash table, strings and symbols with their lengths; the end.
    let dynamic: [u32; 14] = [14, 1, 4, HASH, 5, STRINGS, 6, SYMBOLS, 10, 15, 11, 16, 0, 0];
    // One bucket with nothing in it, for the one symbol that every table begins with, which is zero.
    let hash: [u32; 4] = [1, 1, 0, 0];
    let mut file = [0; LENGTH];
    put(&mut file, 0, &header);
    put(&mut file, SEGMENTS, &segments);
    put(&mut file, DYNAMIC, &dynamic);
    put(&mut file, HASH, &hash);
    let mut at = 0;
    while at < NAMES.len() {
        file[STRINGS as usize + at] = NAMES[at];
        at += 1;
    }
    file
}

const fn put(file: &mut [u8; LENGTH], start: u32, numbers: &[u32]) {
    let mut at = 0;
    while at < numbers.len() {
        let four = numbers[at].to_le_bytes();
        let mut byte = 0;
        while byte < 4 {
            file[start as usize + at * 4 + byte] = four[byte];
            byte += 1;
        }
        at += 1;
    }
}

//! Cubins: ELF files for machine 190. Kernels are function symbols that carry the entry mark; their parameters lie in
//! `.nv.info.<name>`.

use std::ffi::CString;

use object::{
    LittleEndian, Object as _, ObjectSection as _, ObjectSymbol as _, SymbolFlags,
    elf::{FileHeader64, STT_FUNC, STT_OBJECT},
    read::elf::{ElfFile64, ElfSymbol64, FileHeader as _, SectionHeader as _},
};

use crate::{
    error::{CuError, CuResult},
    image::{Image, Kernel, Variable},
};

pub(super) const MAGIC: [u8; 4] = *b"\x7fELF";

/// The ELF machine number of CUDA code.
const MACHINE: u16 = 190;
/// Mark of an entry point in a symbol's `st_other`.
const ENTRY_MARK: u8 = 0x10;
/// Shared memory that the driver keeps for itself in every block of newer cards; it is part of the section's size.
const RESERVED_SHARED: u32 = 1024;

/// Attributes of `.nv.info`.
const FRAME_SIZE: u8 = 0x11;
const REGISTERS: u8 = 0x2F;
const MAX_THREADS: u8 = 0x05;
const PARAMETER: u8 = 0x17;

type Elf<'a> = ElfFile64<'a, LittleEndian>;

/// The length of the cubin at `start`: a program passes only its address. It ends with its section or program headers.
///
/// # Safety
/// `start` leads to a whole cubin.
pub(crate) unsafe fn length(start: *const u8) -> CuResult<usize> {
    // SAFETY: a cubin has a whole file header.
    let head = unsafe { std::slice::from_raw_parts(start, size_of::<FileHeader64<LittleEndian>>()) };
    let header = FileHeader64::<LittleEndian>::parse(head).map_err(|_| CuError::INVALID_IMAGE)?;
    let end = LittleEndian;
    let table = |offset: u64, count: u16, size: u16| {
        offset.checked_add(u64::from(count) * u64::from(size)).and_then(|end| usize::try_from(end).ok())
    };
    let sections = table(header.e_shoff(end), header.e_shnum(end), header.e_shentsize(end));
    let programs = table(header.e_phoff(end), header.e_phnum(end), header.e_phentsize(end));
    let length = sections.max(programs).filter(|&length| length < 1 << 40);
    length.map(|length| length.max(head.len())).ok_or(CuError::INVALID_IMAGE)
}

/// Reads the declarations; `CUDA_ERROR_INVALID_IMAGE` where it is no whole cubin.
pub(crate) fn parse(bytes: &[u8]) -> CuResult<Image> {
    let invalid = |_| CuError::INVALID_IMAGE;
    let elf = Elf::parse(bytes).map_err(invalid)?;
    let header = elf.elf_header();
    if header.e_machine(LittleEndian).0 != MACHINE {
        return Err(CuError::INVALID_IMAGE);
    }
    let architecture = architecture(header.e_ident().abi_version, header.e_flags(LittleEndian).0);
    let mut image =
        Image { kernels: Vec::new(), variables: Vec::new(), architecture, length: bytes.len() as u64 };
    let notes = elf.section_by_name(".nv.info").and_then(|section| section.data().ok()).unwrap_or_default();
    for symbol in elf.symbols() {
        let (SymbolFlags::Elf { st_info, st_other }, Ok(name)) = (symbol.flags(), symbol.name()) else {
            continue;
        };
        if st_info.st_type() == STT_FUNC && st_other.0 & ENTRY_MARK != 0 {
            let kernel = kernel(&elf, name, symbol.index().0, notes).ok_or(CuError::INVALID_IMAGE)?;
            image.kernels.push(kernel);
        } else if st_info.st_type() == STT_OBJECT
            && symbol.section_index().is_some()
            && let Ok(name) = CString::new(name)
        {
            let initial = initial(&elf, &symbol).unwrap_or_default();
            image.variables.push(Variable { name, size: symbol.size(), initial });
        }
    }
    Ok(image)
}

/// The bytes of a variable that the file brings along; none for one that starts as zeros.
fn initial(elf: &Elf<'_>, symbol: &ElfSymbol64<'_, '_, LittleEndian>) -> Option<Vec<u8>> {
    let section = elf.section_by_index(symbol.section_index()?).ok()?;
    let start = usize::try_from(symbol.address().checked_sub(section.address())?).ok()?;
    let end = start.checked_add(usize::try_from(symbol.size()).ok()?)?;
    section.data().ok()?.get(start..end).map(<[u8]>::to_vec)
}

/// The number of the architecture (90 for `sm_90`): the lowest byte of the flags up to ABI version 7, the second
/// one from 8 on and for architectures that came later.
fn architecture(abi_version: u8, flags: u32) -> u32 {
    let low = flags & 0xFF;
    if abi_version >= 8 || low < 20 { (flags >> 8) & 0xFF } else { low }
}

fn section_size(elf: &Elf<'_>, name: &str) -> u32 {
    elf.section_by_name(name).map_or(0, |section| {
        u32::try_from(section.elf_section_header().sh_size(LittleEndian)).unwrap_or(u32::MAX)
    })
}

fn kernel(elf: &Elf<'_>, name: &str, symbol: usize, notes: &[u8]) -> Option<Kernel> {
    let mut kernel = Kernel::named(name)?;
    let shared = section_size(elf, &format!(".nv.shared.{name}"));
    let reserved =
        elf.sections().any(|section| section.name().is_ok_and(|name| name.starts_with(".nv.shared.res")));
    kernel.shared = if reserved { shared.saturating_sub(RESERVED_SHARED) } else { shared };
    kernel.constant = section_size(elf, ".nv.constant3");
    for (attribute, value) in Attributes(notes) {
        let of_this_kernel = word(value, 0).is_some_and(|index| index as usize == symbol);
        match (attribute, word(value, 4)) {
            (REGISTERS, Some(count)) if of_this_kernel => kernel.registers = count,
            (FRAME_SIZE, Some(bytes)) if of_this_kernel => kernel.local = bytes,
            _ => {}
        }
    }
    let own = elf.section_by_name(&format!(".nv.info.{name}"))?;
    let mut parameters = Vec::new();
    for (attribute, value) in Attributes(own.data().ok()?) {
        match (attribute, word(value, 0), word(value, 4), word(value, 8)) {
            (MAX_THREADS, Some(x), Some(y), Some(z)) => {
                kernel.max_threads = x.saturating_mul(y).saturating_mul(z).min(1024);
            }
            // Place and offset share a word; the size is in the upper bits of the next one.
            (PARAMETER, Some(_), Some(place_and_offset), Some(flags)) => {
                parameters.push((
                    place_and_offset & 0xFFFF,
                    (place_and_offset >> 16) as usize,
                    (flags >> 18) as usize,
                ));
            }
            _ => {}
        }
    }
    parameters.sort_unstable();
    kernel.parameters = Some(parameters.into_iter().map(|(_, offset, size)| (offset, size)).collect());
    Some(kernel)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes)
}

/// The attributes of an `.nv.info` section: a format byte, the attribute, then two bytes that are the value itself
/// (formats 1 to 3) or the length of what follows (format 4).
struct Attributes<'a>(&'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (head, rest) = self.0.split_at_checked(4)?;
        let length = if head[0] == 4 { usize::from(u16::from_le_bytes([head[2], head[3]])) } else { 0 };
        let (value, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((head[1], if head[0] == 4 { value } else { &head[2..] }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_styles_of_flags_name_the_architecture() {
        assert_eq!(architecture(7, 0x005A_0D5A), 90);
        assert_eq!(architecture(8, 0x0600_5A04), 90);
        assert_eq!(architecture(8, 0x0600_4B04), 75);
        assert_eq!(architecture(8, 0x0600_7802), 120);
        assert_eq!(architecture(7, 0x0600_6402), 100);
    }
}

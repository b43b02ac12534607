//! Every row of the table as a function of its own name: what the built library exports, and what `dlsym` and
//! `cuGetProcAddress` hand out. In any other build the names are ordinary ones, so that tests are not interposed.

use crate::table::{Entry, for_each_row};

macro_rules! body {
    (gate $name:ident) => {
        $crate::trampolines::gate!(Entry::$name)
    };
    (lease $name:ident) => {
        $crate::trampolines::gate!(Entry::$name)
    };
    (context $name:ident) => {
        $crate::trampolines::gate!(Entry::$name)
    };
    (launch $name:ident) => {
        $crate::trampolines::launch!(Entry::$name)
    };
    (identity $name:ident $hook:path) => {
        $crate::trampolines::identity!(Entry::$name, $hook)
    };
    (hook $name:ident $hook:path) => {
        $crate::trampolines::forward!(Entry::$name, $hook)
    };
}

/// How a distance is written: 16 bits in the built library, where all rows lie together; 32 elsewhere, where the
/// compiler works in several pieces.
#[cfg(feature = "preload")]
macro_rules! distance {
    () => {
        ".short"
    };
}
#[cfg(not(feature = "preload"))]
macro_rules! distance {
    () => {
        ".long"
    };
}
#[cfg(feature = "preload")]
type Distance = i16;
#[cfg(not(feature = "preload"))]
type Distance = i32;

macro_rules! define {
    ($($kind:ident $name:ident $(: $class:ident = $hook:path)?;)*) => {
        #[allow(non_snake_case, missing_docs, reason = "names are the driver's own; the table says what they are")]
        mod functions {
            use super::*;
            $(
                #[cfg_attr(all(feature = "preload", not(test)), unsafe(no_mangle))]
                #[unsafe(link_section = ".text.rows")]
                #[unsafe(naked)]
                pub(crate) unsafe extern "C" fn $name() {
                    body!($kind $name $($hook)?)
                }
            )*
        }

        /// Not to be called: by row, the distance from here to the row's function. Kept as distances, since addresses
        /// would have to be filled in by the loader in every process that starts.
        #[unsafe(link_section = ".text.rows")]
        #[unsafe(naked)]
        unsafe extern "C" fn distances() {
            core::arch::naked_asm!(
                $(concat!(distance!(), " {", stringify!($name), "} - {here}"),)*
                here = sym distances,
                $($name = sym functions::$name,)*
            )
        }
    };
}

for_each_row!(define);

/// Address of the function that a program gets for a row.
pub(crate) fn address(entry: Entry) -> usize {
    let start: unsafe extern "C" fn() = distances;
    let start = start as *const ();
    // SAFETY: as many distances as there are rows.
    let distance = unsafe { start.cast::<Distance>().add(entry.index()).read() };
    start.expose_provenance().wrapping_add_signed(distance as isize)
}

/// The row of an entry point of this library: each one begins with `mov eax, row`.
#[cfg(any(feature = "preload", test))]
pub(crate) fn row_at(address: usize) -> Option<Entry> {
    let start: *const u8 = core::ptr::with_exposed_provenance(address);
    // SAFETY: the caller has the address of an entry point, which is longer than these five bytes.
    let row = unsafe { start.add(1).cast::<u32>().read_unaligned() };
    Entry::from_index(row as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_point_begins_by_naming_its_row() {
        for entry in Entry::all() {
            assert_eq!(row_at(address(entry)), Some(entry));
        }
    }
}

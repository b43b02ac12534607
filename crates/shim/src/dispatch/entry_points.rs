//! Every row of the table as a function of its own name: what the built library exports, and what `dlsym` and
//! `cuGetProcAddress` hand out. In any other build the names are ordinary ones, so that tests are not interposed.

use super::bindings::{for_each_binding, for_each_family};
use crate::table::{Entry, for_each_row};

/// Defines the function of a row's name with this body.
macro_rules! function {
    ($name:ident, $body:expr) => {
        #[cfg_attr(all(feature = "preload", not(test)), unsafe(no_mangle))]
        #[unsafe(link_section = ".text.rows")]
        #[unsafe(naked)]
        pub(crate) unsafe extern "C" fn $name() {
            $body
        }
    };
}

/// The function of a row that has no hook; the others are defined by their bindings.
macro_rules! unbound {
    ($($kind:ident $name:ident $(: $class:ident)?;)*) => {
        $(unbound!(@ $kind $name);)*
    };
    (@ launch $name:ident) => {
        function!($name, crate::dispatch::trampolines::launch!(Entry::$name));
    };
    (@ identity $name:ident) => {};
    (@ hook $name:ident) => {};
    (@ $kind:ident $name:ident) => {
        function!($name, crate::dispatch::trampolines::gate!(Entry::$name));
    };
}

/// The functions of rows whose hook has their form.
macro_rules! bound {
    ($($form:ident $name:ident = $hook:path;)*) => {
        $(function!($name, crate::dispatch::trampolines::$form!(Entry::$name, $hook));)*
    };
}

/// The functions of rows whose hook wants words, and for each hook the piece of code that leads them to it.
macro_rules! families {
    ($($family:ident { $($hook:ident: $($name:ident)*;)* })*) => {
        $(
            mod $family {
                use crate::dispatch::words::{WordHook, to_hook};
                use crate::hooks::$family;

                $(
                    const _: WordHook = $family::$hook;
                    #[unsafe(link_section = ".text.rows")]
                    #[unsafe(naked)]
                    pub(super) unsafe extern "C" fn $hook() {
                        to_hook!($family::$hook)
                    }
                )*
            }
            $($(function!($name, crate::dispatch::trampolines::direct!(Entry::$name, $family::$hook));)*)*
        )*
    };
}

/// Every row's function, from wherever it is defined: one that is defined twice is ambiguous, and does not compile.
mod functions {
    pub(super) use super::families::*;
    pub(super) use super::others::*;
}

#[allow(non_snake_case, missing_docs, reason = "names are the driver's own; the table says what they are")]
mod others {
    use super::{Entry, for_each_binding, for_each_row};
    use crate::dispatch::resolver;
    use crate::hooks::{contexts, identity, memory, nvml};

    for_each_row!(unbound);
    for_each_binding!(bound);
}

#[allow(non_snake_case, missing_docs, reason = "as above")]
mod families {
    use super::{Entry, for_each_family};

    for_each_family!(families);
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

macro_rules! distances {
    ($($kind:ident $name:ident $(: $class:ident)?;)*) => {
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

for_each_row!(distances);

/// Address of the function that a program gets for a row.
pub(super) fn address(entry: Entry) -> usize {
    let start: unsafe extern "C" fn() = distances;
    let start = start as *const ();
    // SAFETY: as many distances as there are rows.
    let distance = unsafe { start.cast::<Distance>().add(entry.index()).read() };
    start.expose_provenance().wrapping_add_signed(distance as isize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::names::row_at;

    #[test]
    fn every_entry_point_begins_by_naming_its_row() {
        for entry in Entry::all() {
            assert_eq!(row_at(address(entry)), Some(entry));
        }
    }
}

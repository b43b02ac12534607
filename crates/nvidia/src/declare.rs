//! The macros that declare constants and structures and, from the same lines, the lists that a test compares with
//! NVIDIA's headers. The crate's documentation says how they are written.

/// A value, as the test compares it.
#[derive(Debug, Clone, Copy)]
pub struct Constant {
    /// The header's name.
    pub name: &'static str,
    /// The value, sign-extended where its type has a sign.
    pub value: u64,
    /// The first major release of CUDA whose header has it, of the two that are compared.
    pub since: u32,
}

/// A structure, as the test compares it.
#[derive(Debug, Clone, Copy)]
pub struct Structure {
    /// The header's type.
    pub name: &'static str,
    /// Empty, or the member of that type that is meant: `res.linear`.
    pub member: &'static str,
    /// Bytes.
    pub size: usize,
    /// Its fields, in order.
    pub fields: &'static [Field],
}

/// A field of a structure.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// The header's name, or the way through members to it; empty for bytes that the header does not name.
    pub path: &'static str,
    /// Bytes from the beginning of the structure.
    pub offset: usize,
    /// Bytes.
    pub size: usize,
    /// The first major release of CUDA whose header has it, of the two that are compared.
    pub since: u32,
}

/// The first argument that is there.
macro_rules! first {
    ($first:expr $(, $other:expr)?) => {
        $first
    };
}

/// Declares values, and lists them as `CONSTANTS`.
macro_rules! constants {
    ($($($(#[$doc:meta])* enum $type:ident =)? $repr:ty {
        $($(#[$note:meta])* $name:ident = $value:literal $(since $release:literal)?,)*
    })*) => {
        $(
            $($(#[$doc])* pub type $type = $repr;)?
            $(
                #[allow(missing_docs, reason = "the header's name; its type says what it is for")]
                $(#[$note])*
                pub const $name: $repr = $value;
            )*
        )*

        #[allow(clippy::cast_sign_loss, trivial_numeric_casts, reason = "sign-extended, as the test does in C")]
        pub(crate) const CONSTANTS: &[crate::Constant] = &[$($(crate::Constant {
            name: stringify!($name),
            value: $name as u64,
            since: crate::declare::first!($($release,)? 12),
        },)*)*];
    };
}

/// Declares structures, and lists them as `STRUCTURES`.
macro_rules! structures {
    ($($(#[$doc:meta])* struct $name:ident $(= $type:literal $(at $member:literal)?)? {
        $($(#[$note:meta])* $field:ident: $field_type:ty $(= $path:literal $(since $release:literal)?)?,)*
    })*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy)]
            #[repr(C)]
            #[allow(missing_docs, reason = "fields have the header's names; units are beside those that have one")]
            pub struct $name {
                $($(#[$note])* pub $field: $field_type,)*
            }
        )*

        pub(crate) const STRUCTURES: &[crate::Structure] = &[$(crate::Structure {
            name: crate::declare::first!($($type,)? stringify!($name)),
            member: crate::declare::first!($($($member,)?)? ""),
            size: size_of::<$name>(),
            fields: &[$(crate::Field {
                path: crate::declare::first!($($path,)? stringify!($field)),
                offset: core::mem::offset_of!($name, $field),
                size: size_of::<$field_type>(),
                since: crate::declare::first!($($($release,)?)? 12),
            },)*],
        },)*];
    };
}

pub(crate) use {constants, first, structures};

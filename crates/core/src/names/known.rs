//! The resource names that are known to exist, with their kind.

use std::collections::BTreeMap;
use std::sync::LazyLock;

/// One section a kind, one name a line; lines with `#` are remarks.
const DATA: &str = include_str!("../../data/names.txt");

/// Every known name (the part after `nvidia.com/`) with the word of its kind.
static KNOWN: LazyLock<BTreeMap<&'static str, &'static str>> = LazyLock::new(|| {
    let mut kind = "";
    let mut known = BTreeMap::new();
    for line in DATA.lines().filter(|line| !line.starts_with('#')) {
        match line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            Some(section) => kind = section,
            None => {
                known.insert(line, kind);
            }
        }
    }
    known
});

/// The known names, each without its domain, with the word of the kind that it is published as; in name order.
pub fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
    KNOWN.iter().map(|(name, kind)| (*name, *kind))
}

/// Whether a name is known, with or without `nvidia.com/`.
pub fn is_known(resource: &str) -> bool {
    super::local_name(resource).is_some_and(|name| KNOWN.contains_key(name))
}

//! How NVIDIA's VM-side plugins turn a card's PCI name, or a vGPU's type, into a resource name.
//!
//! The rules are those of kubevirt-gpu-device-plugin 1.6.0 (the operand `sandbox-device-plugin`) and
//! sandbox-device-plugin 0.0.5 (the operand `kata-sandbox-device-plugin`).

use super::DOMAIN;

/// The PCI vendor whose devices the plugins look at.
pub const NVIDIA_VENDOR: u16 = 0x10de;

/// The name under which the Kata plugin advertises every card unless its `P_GPU_ALIAS` is set.
pub const KATA_ALIAS: &str = "nvidia.com/pgpu";

/// What the Kata plugin calls a card that its PCI table lacks, when its alias is set to nothing.
pub const KATA_UNKNOWN: &str = "nvidia.com/UNKNOWN_DEVICE";

/// The longest local part of a resource name that the kubelet accepts, in characters.
pub const LONGEST_NAME: usize = 63;

/// The resource of a card on kubevirt-gpu-device-plugin, from its name in the PCI table, such as `GA102GL [A10]`,
/// or from its device id where the table has none.
pub fn kubevirt_card(pci_name: Option<&str>, device: u16) -> String {
    pci_name.map_or_else(|| format!("{DOMAIN}{device:04x}"), |name| DOMAIN.to_owned() + &spell(name, '.'))
}

/// The resource of a card on the Kata plugin with its alias set to nothing. Hyphens survive here.
pub fn kata_card(pci_name: Option<&str>) -> String {
    pci_name.map_or_else(|| KATA_UNKNOWN.to_owned(), |name| DOMAIN.to_owned() + &spell(name, '-'))
}

/// The resource of a vGPU type, such as `NVIDIA A10-12Q`, on kubevirt-gpu-device-plugin. Case and hyphens stay.
pub fn vgpu(mdev_type: &str) -> String {
    DOMAIN.to_owned() + &join_blanks(mdev_type.trim_matches(is_blank))
}

/// Why the kubelet would refuse to register a name, if it would.
pub fn refused_because(resource: &str) -> Option<String> {
    let name = resource.strip_prefix(DOMAIN).unwrap_or(resource);
    let plain = |c: char| c.is_ascii_alphanumeric();
    if name.is_empty() {
        Some("it is empty".to_owned())
    } else if name.len() > LONGEST_NAME {
        Some(format!("it has {} characters, more than {LONGEST_NAME}", name.len()))
    } else if !name.starts_with(plain) || !name.ends_with(plain) {
        Some("it does not begin and end with a letter or digit".to_owned())
    } else if !name.chars().all(|c| plain(c) || matches!(c, '-' | '_' | '.')) {
        Some("it has characters other than letters, digits, '-', '_' and '.'".to_owned())
    } else {
        None
    }
}

fn spell(pci_name: &str, survivor: char) -> String {
    let joined = join_blanks(&pci_name.trim().to_uppercase().replace(['/', '.'], "_"));
    joined.chars().filter(|&c| c.is_ascii_alphanumeric() || c == '_' || c == survivor).collect()
}

/// Every run of blanks becomes one underscore.
fn join_blanks(text: &str) -> String {
    let mut joined = String::with_capacity(text.len());
    let mut in_blank = false;
    for character in text.chars() {
        if is_blank(character) {
            if !in_blank {
                joined.push('_');
            }
            in_blank = true;
        } else {
            joined.push(character);
            in_blank = false;
        }
    }
    joined
}

/// What `\s` means in the plugins' own patterns.
fn is_blank(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\n' | '\u{c}' | '\r')
}

//! The table of PCI ids, NVIDIA's part of it.

use gpupool_core::names::{self, plugin};

/// A line per device: its id in hexadecimal, a blank and its name. The build script writes it.
const TABLE: &str = include_str!(concat!(env!("OUT_DIR"), "/nvidia_devices.txt"));

/// The date of the table that is built in. kubevirt-gpu-device-plugin 1.6.0 carries the same one.
pub(super) const VERSION: &str = "2025-07-11";

/// A device's name, such as `GA102GL [A10]`.
pub(super) fn name(device: u16) -> Option<&'static str> {
    devices().find(|(id, _)| *id == device).map(|(_, name)| name)
}

/// Every resource name that the two plugins make of NVIDIA's devices, without its domain; some twice.
pub(super) fn spellings() -> impl Iterator<Item = String> {
    devices().flat_map(|(id, name)| {
        let spelled = [plugin::kubevirt_card(Some(name), id), plugin::kata_card(Some(name))];
        spelled.map(|resource| names::local_name(&resource).unwrap_or_default().to_owned())
    })
}

/// The devices that kubevirt-gpu-device-plugin gives this resource name.
pub(super) fn devices_called(resource: &str) -> impl Iterator<Item = u16> {
    devices().filter(move |(id, name)| plugin::kubevirt_card(Some(name), *id) == resource).map(|(id, _)| id)
}

fn devices() -> impl Iterator<Item = (u16, &'static str)> {
    TABLE.lines().filter_map(|line| {
        let (id, name) = line.split_once(' ')?;
        Some((u16::from_str_radix(id, 16).ok()?, name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpupool_core::names::{ResourceKind, classify, known};

    #[test]
    fn no_device_of_the_table_is_taken_for_a_vgpu_profile() {
        let mut count = 0;
        for name in spellings() {
            assert_ne!(classify(&name), ResourceKind::Vgpu, "{name}");
            count += 1;
        }
        assert_eq!(count, 2 * 1931);
    }

    #[test]
    fn known_models_that_begin_with_a_chip_are_those_of_the_table_and_a_few_seen_in_dumps() {
        let table: std::collections::HashSet<String> = spellings().collect();
        let seen: Vec<_> = known::names()
            .filter(|(name, kind)| {
                *kind == "passthrough" && names::names_a_chip(name) && !table.contains(*name)
            })
            .map(|(name, _)| name)
            .collect();
        // An entry of an older table, and names of plugins before 2022, which kept the table's case.
        assert_eq!(
            seen,
            ["GM204GL", "GP102GL_Tesla_P40", "TU102_GeForce_RTX_2080_Ti_Rev_A", "TU104GL_Tesla_T4"]
        );
    }
}

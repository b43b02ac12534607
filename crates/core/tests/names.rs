//! Names: every known name has its kind, near misses are told apart, plugins' spelling, and what somebody meant.
#![allow(clippy::expect_used, reason = "a test that cannot set itself up has failed")]

use gpupool_core::names::{
    ResourceKind, classify, is_raw_pci_id, known, names_a_chip, nearest::nearest, plugin,
};
use proptest::prelude::*;

#[test]
fn every_known_name_has_the_kind_it_is_published_as() {
    let mut count = 0;
    for (name, kind) in known::names() {
        assert_eq!(classify(&format!("nvidia.com/{name}")).word(), kind, "{name}");
        assert_eq!(classify(name).word(), kind, "{name} without its domain");
        assert!(known::is_known(name));
        count += 1;
    }
    assert_eq!(count, 1229);
}

/// Vectors: a name and what it is, chosen where simpler rules go wrong.
const VECTORS: &[(ResourceKind, &[&str])] = &[
    (
        ResourceKind::Vgpu,
        &[
            "NVIDIA_A10-12Q",
            "NVIDIA_A10-4Q",
            "A10-12Q",
            "GRID_T4-1Q",
            "GRID_T4-1B",
            "GRID_T4-16A",
            "GRID_P40-2B4",
            "GRID_M60-0Q",
            "GRID_V100DX-32C",
            "GRID_RTX6000P-24Q",
            "GRID_A100-1-10C",
            "NVIDIA_A100-1-5C",
            "NVIDIA_A100-1-5CME",
            "NVIDIA_A100D-1-10CME",
            "NVIDIA_A30-2-12CME",
            "NVIDIA_A100X-7-40C",
            "NVIDIA_H100XM-80C",
            "NVIDIA_H100XL-1-12CME",
            "NVIDIA_H200X-7-141C",
            "NVIDIA_GH200L-144C",
            "NVIDIA_B200X-1-23CME",
            "NVIDIA_GB200-189C",
            "NVIDIA_L40S-48Q",
            "NVIDIA_RTX6000-Ada-48Q",
            "NVIDIA_RTX_Pro_6000_Blackwell_DC-48C",
            "NVIDIA_RTX_Pro_6000_Blackwell_DC-1-24Q",
            "NVIDIA_6000D-84Q",
            "DC-1-24QGFX",
            "NVIDIA_A10-0Q",
            // A hyphen, digits and any one capital: the published rule, wider than the real series.
            "FOO-12X",
            "h100-80G",
            "NVIDIA_A10-012Q",
        ],
    ),
    (
        ResourceKind::Passthrough,
        &[
            "GA102GL_A10",
            "GA102GL_A10G",
            "GA102GL_A10M",
            "AD102GL_L40S",
            "AD102GL_L40G",
            "TU104GL_T4G",
            "TU104GL_TESLA_T4",
            "TU104GL_Tesla_T4",
            "GA100_A100X",
            "GA100_A30X",
            "GH100_H20B",
            "GH100_H20_HBM3E",
            "GH100_GH200_144G_HBM3E",
            "GH100_GH200_120GB___480GB",
            "GH100_H100L_94GB",
            "GA100_A100_SXM4_80GB",
            "GA100_A100SXM64GB",
            "GA100_A100-SXM-64GB",
            "GA100_A800-SXM4-80GB",
            "GH100_GH100-88K-A1",
            "GP100_CMP_100-100",
            "GV100GL_TESLA_GV100_DGX1-V",
            "GV100GL_TESLA_GV100_DGX1V",
            "GV100GL_TESLA_GV100_SXM2-16GB_SKU_890",
            "TU102GL_TESLA_T10_16GB___GRID_RTX_T10-2_T10-4_T10-8",
            "GK107GL_GRID_K140Q_VGPU",
            "GA100_GRID_A100A",
            "GB202GL_RTX_PRO_6000_BLACKWELL_MAX-Q_WORKSTATION_EDITION",
            "GA100GL_PG506-232",
            "A100-SXM4-40GB",
            "GA100",
            "2571",
            "2235",
            "20b0",
            "UNKNOWN_DEVICE",
            "pgpu",
            "SAS_5_IR_INTEGRATED_RAID_CONTROLLER",
            "ARIEL_DEVICE_24_FUNCTION_3",
            "NVIDIA_A10-12q",
            "NVIDIA_A10_12Q",
            "NVIDIA_A10-012QME",
            "NVIDIA_A10-12",
            "NVIDIA_A10-Q",
            "NVIDIA_A10-12QQ",
            "NVIDIA_A10-12Q4Q",
            "NVIDIA_A10-12É",
            "",
        ],
    ),
    (ResourceKind::Container, &["gpu"]),
    (ResourceKind::Shared, &["gpu.shared", "mig-3g.20gb.shared", "mig-1g.5gb.shared"]),
    (
        ResourceKind::Mig,
        &["mig-1g.5gb", "mig-1g.5gb.me", "mig-1g.24gb-me", "mig-1g.24gb.me.all", "mig-9g.999gb"],
    ),
    (
        ResourceKind::Companion,
        &[
            "GA102_HIGH_DEFINITION_AUDIO_CONTROLLER",
            "TU104_HD_AUDIO_CONTROLLER",
            "TU106_USB_TYPEC_UCSI_CONTROLLER",
            "TU104_USB_3_1_HOST_CONTROLLER",
        ],
    ),
    (ResourceKind::Fabric, &["nvswitch", "GH100_H100_NVSWITCH"]),
    (
        ResourceKind::Other,
        &["hostdev", "gpumem", "gpumem-percentage", "gpucores", "priority", "gpu.imex-channels"],
    ),
];

#[test]
fn near_misses_are_told_apart() {
    for (kind, names) in VECTORS {
        for name in *names {
            assert_eq!(classify(&format!("nvidia.com/{name}")), *kind, "{name}");
        }
    }
}

#[test]
fn another_domain_is_no_gpu_workload() {
    for name in [
        "alibabacloud.com/gpu-core.percentage",
        "amd.com/gpu",
        "nvidia.com.evil/gpu",
        "NVIDIA.com/gpu",
        "a/b/c",
    ] {
        assert_eq!(classify(name), ResourceKind::Other, "{name}");
    }
}

#[test]
fn raw_pci_ids_and_foreign_devices_are_recognised() {
    for raw in ["nvidia.com/2571", "20b0", "nvidia.com/abcd"] {
        assert!(is_raw_pci_id(raw), "{raw}");
    }
    for other in ["GA102GL_A10", "25711", "20B0", "pgpu", "gpu", "amd.com/2571"] {
        assert!(!is_raw_pci_id(other), "{other}");
    }
    for chip in ["GA102GL_A10", "nvidia.com/TU104GL_TESLA_T4", "GH100", "AD102GL_L40", "G92_GEFORCE_9800_GT"]
    {
        assert!(names_a_chip(chip), "{chip}");
    }
    for foreign in [
        "SAS_5_IR_INTEGRATED_RAID_CONTROLLER",
        "ARIEL_DEVICE_24_FUNCTION_3",
        "UNKNOWN_DEVICE",
        "GRID_T4",
        "2571",
    ] {
        assert!(!names_a_chip(foreign), "{foreign}");
    }
}

fn meant(name: &str) -> Vec<&'static str> {
    nearest(name, known::names().map(|(name, _)| name), 3)
}

#[test]
fn the_nearest_name_is_the_one_that_was_meant() {
    for (typed, first) in [
        ("TU104GL_T4", "TU104GL_TESLA_T4"),
        ("nvidia.com/TU104GL_T4", "TU104GL_TESLA_T4"),
        ("nvidia_a10-12q", "NVIDIA_A10-12Q"),
        ("NVIDIA_A10_12Q", "NVIDIA_A10-12Q"),
        ("NVIDIA A10-12Q", "NVIDIA_A10-12Q"),
        ("GA102GL_A1O", "GA102GL_A10"),
        ("GA102_A10", "GA102GL_A10"),
        ("GH100_H100_PCI", "GH100_H100_PCIE"),
        ("gpus", "gpu"),
        ("mig-1g.5g", "mig-1g.5gb"),
    ] {
        assert_eq!(meant(typed).first(), Some(&first), "{typed}: {:?}", meant(typed));
    }
    for nonsense in ["", "quantum-computer", "amd.com/gpu-of-somebody-else", &"A".repeat(1 << 20)] {
        assert_eq!(meant(nonsense), Vec::<&str>::new(), "{nonsense:.40}");
    }
}

#[test]
fn the_plugins_spell_a_card_as_they_really_do() {
    for (pci_name, device, kubevirt, kata) in [
        (Some("GA102GL [A10]"), 0x2236, "GA102GL_A10", "GA102GL_A10"),
        (Some("TU104GL [Tesla T4]"), 0x1eb8, "TU104GL_TESLA_T4", "TU104GL_TESLA_T4"),
        (Some("GA107GL [A2 / A16]"), 0x25b6, "GA107GL_A2___A16", "GA107GL_A2___A16"),
        (
            Some("GH100 [GH200 120GB / 480GB]"),
            0x2342,
            "GH100_GH200_120GB___480GB",
            "GH100_GH200_120GB___480GB",
        ),
        (Some("GA100 [A100-SXM-64GB]"), 0x20b3, "GA100_A100SXM64GB", "GA100_A100-SXM-64GB"),
        (
            Some("TU104 USB 3.1 Host Controller"),
            0x1ad8,
            "TU104_USB_3_1_HOST_CONTROLLER",
            "TU104_USB_3_1_HOST_CONTROLLER",
        ),
        (
            Some(" GA104 \t[RTX A4500 Embedded GPU ]"),
            0x24fa,
            "GA104_RTX_A4500_EMBEDDED_GPU_",
            "GA104_RTX_A4500_EMBEDDED_GPU_",
        ),
        (None, 0x0ABC, "0abc", "UNKNOWN_DEVICE"),
    ] {
        assert_eq!(plugin::kubevirt_card(pci_name, device), format!("nvidia.com/{kubevirt}"));
        assert_eq!(plugin::kata_card(pci_name), format!("nvidia.com/{kata}"));
    }
    assert_eq!(plugin::vgpu("NVIDIA A10-12Q\n"), "nvidia.com/NVIDIA_A10-12Q");
    assert_eq!(
        plugin::vgpu("NVIDIA RTX Pro 6000 Blackwell DC-48C"),
        "nvidia.com/NVIDIA_RTX_Pro_6000_Blackwell_DC-48C"
    );
}

#[test]
fn a_name_that_kubelet_refuses_is_known_beforehand() {
    for good in ["nvidia.com/gpu", "nvidia.com/NVIDIA_A10-12Q", "nvidia.com/mig-1g.5gb"] {
        assert_eq!(plugin::refused_because(good), None, "{good}");
    }
    let long = format!("nvidia.com/{}", "A".repeat(64));
    for bad in ["nvidia.com/", "nvidia.com/GA104_RTX_A4500_EMBEDDED_GPU_", "nvidia.com/A+B", long.as_str()] {
        assert!(plugin::refused_because(bad).is_some(), "{bad}");
    }
}

proptest! {
    #[test]
    fn any_brand_and_size_with_a_capital_is_a_profile_and_is_not_one_in_lower_case(
        brand in "[A-Z][A-Za-z0-9_]{0,12}", gigabytes in 0_u16..1000, series in "[A-Z]",
    ) {
        let name = format!("nvidia.com/{brand}-{gigabytes}{series}");
        prop_assume!(!name.contains("_USB_") && !name.contains("_UCSI_"));
        prop_assert_eq!(classify(&name), ResourceKind::Vgpu);
        prop_assert_eq!(classify(&format!("nvidia.com/{brand}-{gigabytes}{}", series.to_lowercase())), ResourceKind::Passthrough);
        prop_assert_eq!(classify(&format!("nvidia.com/{brand}_{gigabytes}{series}")), ResourceKind::Passthrough);
    }

    #[test]
    fn what_the_kubevirt_plugin_makes_of_a_card_is_never_a_profile(pci_name in ".{0,40}", device: u16) {
        // Hyphens are deleted there, and a profile has one.
        prop_assert_ne!(classify(&plugin::kubevirt_card(Some(&pci_name), device)), ResourceKind::Vgpu);
        prop_assert_ne!(classify(&plugin::kubevirt_card(None, device)), ResourceKind::Vgpu);
    }

    #[test]
    fn any_text_has_a_kind_and_neighbours_without_a_panic(name in ".{0,80}") {
        let _ = (classify(&name), plugin::vgpu(&name));
        // A few candidates: all of them take seconds without optimisation.
        let few = known::names().step_by(50).map(|(known, _)| known);
        prop_assert!(nearest(&name, few, 3).len() <= 3);
    }
}

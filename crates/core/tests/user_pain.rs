//! What users of the GPU Operator ran into, row by row of the list that the project keeps of it, as far as the pure
//! rules answer it. Rows 16, 25, 31 and 35 are in `stock.rs`.
#![allow(clippy::expect_used, reason = "a test that cannot set itself up has failed")]

use gpupool_core::checker::{Code, JudgedNode, Judgement, Rules, judge};
use gpupool_core::names::{ResourceKind, classify, is_raw_pci_id, nearest::nearest, plugin};
use gpupool_core::node_use::{Finding, NodeLabels, NodeUse, OperatorSettings, decide};
use gpupool_core::quantity::Quantity;

fn judged(rules: Rules, label: &str, advertised: &[(&str, u32)]) -> Judgement {
    let resources: Vec<(&str, Quantity)> =
        advertised.iter().map(|&(name, count)| (name, Quantity::whole_units(count))).collect();
    let facts = JudgedNode {
        label: Some(label),
        vgpu_config: None,
        allocatable: Some(&resources),
        capacity: Some(&resources),
    };
    judge(rules, facts).expect("carries the label")
}

fn reason(rules: Rules, label: &str, advertised: &[(&str, u32)]) -> String {
    judged(rules, label, advertised).mismatch.expect("a mismatch").to_string()
}

#[test]
fn row_07_an_unlabelled_node_in_a_sandbox_cluster_is_told_which_default_it_gets() {
    let settings = OperatorSettings { enabled: true, default_workload: Some("vm-passthrough") };
    let decision = decide(settings, NodeLabels { gpu_present: true, workload: None }).expect("has a GPU");
    assert_eq!(decision.finding, Some(Finding::NoLabel { taken: NodeUse::VmPassthrough }));
}

#[test]
fn row_09_one_node_is_for_one_use_even_under_the_lenient_rules() {
    let mixed = [("nvidia.com/gpu", 1), ("nvidia.com/GA102GL_A10", 1)];
    for label in ["container", "vm-passthrough"] {
        assert!(judged(Rules::Operator, label, &mixed).mismatch.is_some(), "{label}");
    }
}

#[test]
fn rows_11_and_13_a_wrong_entry_of_the_pci_table_is_warned_of() {
    for wrong in ["nvidia.com/ARIEL_DEVICE_24_FUNCTION_3", "nvidia.com/SAS_5_IR_INTEGRATED_RAID_CONTROLLER"] {
        let judgement = judged(Rules::Operator, "vm-passthrough", &[(wrong, 1)]);
        assert_eq!((judgement.mismatch, judgement.warnings.len()), (None, 1), "{wrong}");
    }
}

#[test]
fn rows_12_and_14_a_raw_pci_id_is_a_passthrough_card_with_a_warning() {
    for raw in ["nvidia.com/2571", "nvidia.com/2235"] {
        assert!(is_raw_pci_id(raw) && classify(raw) == ResourceKind::Passthrough, "{raw}");
        assert_eq!(judged(Rules::Strict, "vm-passthrough", &[(raw, 1)]).warnings.len(), 1, "{raw}");
    }
}

#[test]
fn row_15_what_a_device_will_be_called_is_known_before_it_is_advertised() {
    assert_eq!(plugin::kubevirt_card(Some("TU104GL [Tesla T4]"), 0x1eb8), "nvidia.com/TU104GL_TESLA_T4");
    assert_eq!(plugin::vgpu("GRID T4-1Q"), "nvidia.com/GRID_T4-1Q");
}

#[test]
fn row_17_a_name_without_its_brand_word_finds_the_real_one() {
    let advertised = ["nvidia.com/TU102_TITAN_RTX", "nvidia.com/gpu"];
    assert_eq!(nearest("nvidia.com/TITAN_RTX", advertised, 1), ["nvidia.com/TU102_TITAN_RTX"]);
}

#[test]
fn row_18_the_container_name_on_a_passthrough_node_is_explained() {
    let reason = reason(Rules::Operator, "vm-passthrough", &[("nvidia.com/gpu", 2)]);
    assert!(reason.contains("permittedHostDevices"), "{reason}");
}

#[test]
fn row_19_a_profile_and_a_card_are_told_apart_by_their_names_alone() {
    assert_eq!(classify("nvidia.com/GRID_P40-1Q"), ResourceKind::Vgpu);
    assert_eq!(classify("nvidia.com/GP102GL_TESLA_P40"), ResourceKind::Passthrough);
}

#[test]
fn rows_21_to_23_a_vgpu_node_that_advertises_nothing_is_a_mismatch_with_a_place_to_look() {
    let reason = reason(Rules::Strict, "vm-vgpu", &[("nvidia.com/NVIDIA_A10-12Q", 0)]);
    assert!(reason.contains("vgpu-device-manager") && reason.contains("sandbox-device-plugin"), "{reason}");
}

#[test]
fn row_26_mig_names_left_at_zero_do_not_count() {
    let left = [("nvidia.com/gpu", 8), ("nvidia.com/mig-1g.5gb", 0)];
    assert_eq!(judged(Rules::Strict, "container", &left).mismatch, None);
}

#[test]
fn row_27_stale_slices_beside_whole_cards_are_more_than_one_resource() {
    let stale = [("nvidia.com/gpu", 8), ("nvidia.com/mig-1g.5gb", 56), ("nvidia.com/mig-7g.40gb", 8)];
    let mismatch = judged(Rules::Strict, "container", &stale).mismatch.expect("a mismatch");
    assert_eq!(mismatch.code(), Code::SeveralResources);
}

#[test]
fn row_28_a_plugin_that_went_is_told_from_one_that_never_came() {
    let (none, some) = ([("nvidia.com/gpu", Quantity::ZERO)], [("nvidia.com/gpu", Quantity::whole_units(4))]);
    let facts = JudgedNode {
        label: Some("container"),
        allocatable: Some(&none),
        capacity: Some(&some),
        ..JudgedNode::default()
    };
    let gone = judge(Rules::Strict, facts).expect("labelled").mismatch.expect("a mismatch").to_string();
    let never = reason(Rules::Strict, "container", &[("nvidia.com/gpu", 0)]);
    assert!(gone.contains("left in capacity") && !never.contains("left in capacity"), "{gone} / {never}");
}

#[test]
fn row_32_a_sound_function_beside_its_card_is_no_second_model() {
    let both =
        [("nvidia.com/GA102_GEFORCE_RTX_3090", 4), ("nvidia.com/GA102_HIGH_DEFINITION_AUDIO_CONTROLLER", 4)];
    assert_eq!(judged(Rules::Operator, "vm-passthrough", &both).mismatch, None);
}

#[test]
fn row_37_another_profile_than_the_configured_one_is_found() {
    let made = [("nvidia.com/NVIDIA_A100-1-5C", Quantity::whole_units(7))];
    let facts = JudgedNode {
        label: Some("vm-vgpu"),
        vgpu_config: Some("A100-1-5CME"),
        allocatable: Some(&made),
        capacity: Some(&made),
    };
    let mismatch = judge(Rules::Operator, facts).expect("labelled").mismatch.expect("a mismatch");
    assert_eq!(mismatch.code(), Code::OtherProfile);
}

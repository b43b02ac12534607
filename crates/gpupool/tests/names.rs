//! `gpupool names` and `gpupool operands` from the outside.
#![allow(clippy::expect_used, reason = "a test that cannot set itself up has failed")]

use std::process::Command;

fn gpupool(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_gpupool")).args(arguments).output().expect("runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn each_name_gets_its_kind_on_a_line() {
    let (code, stdout, stderr) = gpupool(&[
        "names",
        "nvidia.com/gpu",
        "nvidia.com/GA102GL_A10",
        "nvidia.com/NVIDIA_A10-12Q",
        "nvidia.com/mig-1g.5gb",
        "nvidia.com/gpu.shared",
        "nvidia.com/hostdev",
        "TU104GL_TESLA_T4",
    ]);
    let expected = "nvidia.com/gpu container\nnvidia.com/GA102GL_A10 passthrough\nnvidia.com/NVIDIA_A10-12Q vgpu\n\
                    nvidia.com/mig-1g.5gb mig\nnvidia.com/gpu.shared shared\nnvidia.com/hostdev other\n\
                    TU104GL_TESLA_T4 passthrough\n";
    assert_eq!((code, stdout.as_str(), stderr.as_str()), (Some(0), expected, ""));
}

#[test]
fn an_unknown_name_gets_the_nearest_that_exist_on_standard_error() {
    let (code, stdout, stderr) =
        gpupool(&["names", "TU104GL_T4", "nvidia.com/NVIDIA_A10-12q", "nvidia.com/zzzzz", "amd.com/gpu"]);
    assert_eq!(code, Some(0));
    assert_eq!(
        stdout,
        "TU104GL_T4 passthrough\nnvidia.com/NVIDIA_A10-12q passthrough\nnvidia.com/zzzzz passthrough\namd.com/gpu other\n"
    );
    let lines: Vec<_> = stderr.lines().collect();
    assert_eq!(lines.len(), 4, "{stderr}");
    assert!(lines[0].contains("nearest: TU104GL_TESLA_T4"), "{}", lines[0]);
    assert!(lines[1].contains("nearest: nvidia.com/NVIDIA_A10-12Q"), "{}", lines[1]);
    assert!(lines[2].contains("none is near"), "{}", lines[2]);
    assert!(lines[3].contains("not under nvidia.com/"), "{}", lines[3]);
}

#[test]
fn a_raw_pci_id_is_told_what_a_newer_plugin_calls_it() {
    let (_, stdout, stderr) = gpupool(&["names", "nvidia.com/2236", "nvidia.com/ffff"]);
    assert_eq!(stdout, "nvidia.com/2236 passthrough\nnvidia.com/ffff passthrough\n");
    assert!(stderr.contains("nvidia.com/GA102GL_A10") && stderr.contains("does not have"), "{stderr}");
}

#[test]
fn a_card_is_called_what_each_plugin_calls_it() {
    let (code, stdout, stderr) = gpupool(&["names", "--pci", "10de:2236", "--pci", "10DE:20B3"]);
    let expected = "PCI=10de:2236 GA102GL [A10]\n\
                    kubevirt-gpu-device-plugin=nvidia.com/GA102GL_A10\n\
                    sandbox-device-plugin=nvidia.com/pgpu\n\
                    sandbox-device-plugin(P_GPU_ALIAS=\"\")=nvidia.com/GA102GL_A10\n\
                    deviceName=nvidia.com/GA102GL_A10\n\
                    PCI=10de:20b3 GA100 [A100-SXM-64GB]\n\
                    kubevirt-gpu-device-plugin=nvidia.com/GA100_A100SXM64GB\n\
                    sandbox-device-plugin=nvidia.com/pgpu\n\
                    sandbox-device-plugin(P_GPU_ALIAS=\"\")=nvidia.com/GA100_A100-SXM-64GB\n\
                    deviceName=nvidia.com/GA100_A100SXM64GB\n";
    assert_eq!((code, stdout.as_str(), stderr.as_str()), (Some(0), expected, ""));
}

#[test]
fn a_card_that_the_table_lacks_keeps_its_id_and_is_warned_of() {
    let (code, stdout, stderr) = gpupool(&["names", "--pci", "ffff"]);
    assert_eq!(code, Some(0));
    assert!(
        stdout.contains("deviceName=nvidia.com/ffff\n") && stdout.contains("=nvidia.com/UNKNOWN_DEVICE\n"),
        "{stdout}"
    );
    assert!(stderr.starts_with("warning: 10de:ffff: not in the PCI table"), "{stderr}");
}

#[test]
fn names_that_collide_or_that_kubelet_refuses_are_warned_of() {
    let (_, _, twins) = gpupool(&["names", "--pci", "10de:20b1"]);
    assert!(twins.contains("10de:20f1"), "{twins}");
    let (_, stdout, refused) = gpupool(&["names", "--pci", "10de:24fa"]);
    assert!(stdout.contains("GA104_RTX_A4500_EMBEDDED_GPU_\n"), "{stdout}");
    assert!(refused.contains("kubelet refuses"), "{refused}");
    let (_, _, audio) = gpupool(&["names", "--pci", "10de:1aef"]);
    assert!(audio.contains("companion function"), "{audio}");
}

#[test]
fn a_vgpu_type_keeps_its_case_and_hyphens() {
    let (code, stdout, stderr) = gpupool(&["names", "--vgpu", "NVIDIA A10-12Q"]);
    let expected = "VGPU=NVIDIA A10-12Q\nkubevirt-gpu-device-plugin=nvidia.com/NVIDIA_A10-12Q\n\
                    sandbox-device-plugin=none\ndeviceName=nvidia.com/NVIDIA_A10-12Q\n";
    assert_eq!((code, stdout.as_str(), stderr.as_str()), (Some(0), expected, ""));
    let (_, stdout, stderr) = gpupool(&["names", "--vgpu", "NVIDIA A10-13Q"]);
    assert!(stdout.contains("deviceName=nvidia.com/NVIDIA_A10-13Q\n"), "{stdout}");
    assert!(stderr.contains("nearest: nvidia.com/NVIDIA_A10-12Q"), "{stderr}");
}

#[test]
fn what_is_no_pci_id_is_a_usage_error() {
    for wrong in ["8086:2236", "10de:22", "10de:22360", "10de:223g", "+236", "", "10de:2236:0"] {
        let (code, stdout, stderr) = gpupool(&["names", "--pci", wrong]);
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{wrong}: {stderr}");
    }
    assert_eq!(gpupool(&["names"]).0, Some(2));
}

#[test]
fn a_hostile_name_breaks_no_line() {
    let (code, stdout, stderr) = gpupool(&["names", "a\nnvidia.com/gpu container\u{1b}[2J b"]);
    assert_eq!((code, stdout.lines().count(), stderr.lines().count()), (Some(0), 1, 1), "{stdout}{stderr}");
    assert!(!stdout.contains('\u{1b}') && !stderr.contains('\u{1b}'));
}

#[test]
fn the_short_operand_list_is_the_published_one() {
    let (code, stdout, stderr) = gpupool(&["operands"]);
    let expected = "container=datacenter-driver,container-toolkit,device-plugin,dcgm-exporter\n\
                    vm-passthrough=vfio-manager,sandbox-device-plugin\n\
                    vm-vgpu=vgpu-manager,vgpu-device-manager,sandbox-device-plugin\n\
                    NO_LABEL=container\n\
                    ENABLE_FLAG=sandboxWorkloads.enabled\n";
    assert_eq!((code, stdout.as_str(), stderr.as_str()), (Some(0), expected, ""));
}

#[test]
fn the_full_list_has_the_deploy_labels_and_tells_which_bring_nothing() {
    let (code, stdout, stderr) = gpupool(&["operands", "--full", "--mig-capable"]);
    assert_eq!(code, Some(0));
    let lines: Vec<_> = stdout.lines().collect();
    assert_eq!(lines.len(), 5);
    assert!(lines[0].starts_with("container=nvidia.com/gpu.deploy.driver,"), "{stdout}");
    assert!(lines[0].ends_with("nvidia.com/gpu.deploy.mig-manager"), "{stdout}");
    assert!(lines[1].contains("nvidia.com/gpu.deploy.sandbox-device-plugin"), "{stdout}");
    assert!(
        stderr.contains("vm-passthrough: labelled but not deployed in this mode: kata-manager, cc-manager"),
        "{stderr}"
    );
    let (_, _, kata) = gpupool(&["operands", "--full", "--mode", "kata"]);
    assert!(kata.contains("warning: vm-vgpu: no plugin runs"), "{kata}");
    assert_eq!(gpupool(&["operands", "--mode", "kata"]).0, Some(2));
}

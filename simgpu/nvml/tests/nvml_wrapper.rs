//! The built library under an unmodified client: the crate through which gpupool's agent reads cards.

use nvml_wrapper::Nvml;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use simgpu_device::{Machine, MachineSettings};

#[test]
fn the_agents_client_sees_cards_memory_processes_and_losses() {
    let dist = gpupool_dist::given_or_built().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    // SAFETY: this is the only test of this process, and no other thread of it reads the environment.
    unsafe { std::env::set_var("SIMGPU_STATE", &state) };
    let machine = Machine::open(&MachineSettings::new(&state, "2xH100-80GB").unwrap()).unwrap();
    let process = machine.join().unwrap();
    process.open_context(1).unwrap();

    let path = dist.join("simgpu/libnvidia-ml.so.1");
    let open = || Nvml::builder().lib_path(path.as_os_str()).init().unwrap();
    // Closing and opening again is what a restarted part of a program does.
    drop(open());
    let nvml = open();
    assert_eq!(nvml.device_count().unwrap(), 2);
    assert_eq!(nvml.sys_cuda_driver_version().unwrap(), 13050);

    let card = nvml.device_by_index(1).unwrap();
    let model = machine.card(1).unwrap();
    assert_eq!(card.uuid().unwrap(), model.uuid().to_string());
    assert_eq!(card.name().unwrap(), model.name());
    assert_eq!(card.index().unwrap(), 1);
    assert_eq!(card.pci_info().unwrap().bus_id, model.pci().to_string());
    let capability = card.cuda_compute_capability().unwrap();
    assert_eq!((capability.major, capability.minor), (9, 0));
    let memory = card.memory_info().unwrap();
    assert_eq!((memory.total, memory.used), (model.total_memory(), model.model().context_memory));
    assert_eq!(card.utilization_rates().unwrap().gpu, 0);

    let processes = card.running_compute_processes().unwrap();
    assert_eq!(processes.len(), 1);
    assert_eq!(processes[0].pid, std::process::id());
    assert_eq!(processes[0].used_gpu_memory, UsedGpuMemory::Used(model.model().context_memory));

    model.lose();
    assert!(matches!(card.memory_info(), Err(NvmlError::GpuLost)));
    assert!(matches!(nvml.device_by_index(1), Err(NvmlError::GpuLost)));
    assert!(nvml.device_by_index(0).is_ok());
    model.recover();
    assert_eq!(card.memory_info().unwrap().total, model.total_memory());
}

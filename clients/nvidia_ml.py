"""nvidia-ml-py: identity, readings, process lists and errors of NVML."""

import re

import holder
import pynvml as nvml
from transcript import check, expect, say


def versions():
    driver = nvml.nvmlSystemGetDriverVersion()
    check("driver version is made of numbers", re.fullmatch(r"\d+(\.\d+)+", driver))
    check("NVML version ends with it", nvml.nvmlSystemGetNVMLVersion().endswith(driver))
    say("CUDA driver version", nvml.nvmlSystemGetCudaDriverVersion_v2())
    check("both functions agree", nvml.nvmlSystemGetCudaDriverVersion() == nvml.nvmlSystemGetCudaDriverVersion_v2())


def identity(card):
    uuid, pci = nvml.nvmlDeviceGetUUID(card), nvml.nvmlDeviceGetPciInfo(card)
    say("name", nvml.nvmlDeviceGetName(card))
    say("uuid", uuid)
    say("bus id", pci.busId)
    say("index", nvml.nvmlDeviceGetIndex(card))
    say("minor number", nvml.nvmlDeviceGetMinorNumber(card))
    say("serial", nvml.nvmlDeviceGetSerial(card))
    say("brand", nvml.nvmlDeviceGetBrand(card))
    say("architecture", nvml.nvmlDeviceGetArchitecture(card))
    say("compute capability", nvml.nvmlDeviceGetCudaComputeCapability(card))
    say("cores", nvml.nvmlDeviceGetNumGpuCores(card))
    for how, found in {
        "uuid": nvml.nvmlDeviceGetHandleByUUID(uuid),
        "bus id": nvml.nvmlDeviceGetHandleByPciBusId(pci.busId),
        "serial": nvml.nvmlDeviceGetHandleBySerial(nvml.nvmlDeviceGetSerial(card)),
    }.items():
        check(f"found again by its {how}", nvml.nvmlDeviceGetUUID(found) == uuid)
    check("bus id is made of the numbers", pci.busId == f"{pci.domain:08X}:{pci.bus:02X}:{pci.device:02X}.0")
    check("no part of a card", not nvml.nvmlDeviceIsMigDeviceHandle(card))
    check("near itself", nvml.nvmlDeviceGetTopologyCommonAncestor(card, card) == nvml.NVML_TOPOLOGY_INTERNAL)
    check("near some processor", any(nvml.nvmlDeviceGetCpuAffinity(card, 16)))


def readings(card):
    plain, second = nvml.nvmlDeviceGetMemoryInfo(card), nvml.nvmlDeviceGetMemoryInfo(card, nvml.nvmlMemory_v2)
    say("total memory", plain.total)
    check("memory adds up", plain.used + plain.free == plain.total)
    check("memory v2 adds up", second.used + second.free + second.reserved == second.total == plain.total)
    window = nvml.nvmlDeviceGetBAR1MemoryInfo(card)
    check("the host's window adds up", window.bar1Used + window.bar1Free == window.bar1Total > 0)
    rates = nvml.nvmlDeviceGetUtilizationRates(card)
    check("utilisation is a percentage", 0 <= rates.gpu <= 100 and 0 <= rates.memory <= 100)
    say("encoder", nvml.nvmlDeviceGetEncoderUtilization(card)[0])
    say("decoder", nvml.nvmlDeviceGetDecoderUtilization(card)[0])
    check("temperature is sane", 10 <= nvml.nvmlDeviceGetTemperature(card, nvml.NVML_TEMPERATURE_GPU) <= 100)
    check("both functions agree", nvml.nvmlDeviceGetTemperatureV(card, 0) <= 100)
    limit = nvml.nvmlDeviceGetEnforcedPowerLimit(card)
    say("power limit", limit)
    check("power is below it", 0 < nvml.nvmlDeviceGetPowerUsage(card) <= limit)
    say("performance state", nvml.nvmlDeviceGetPerformanceState(card))
    say("persistence mode", nvml.nvmlDeviceGetPersistenceMode(card))
    say("compute mode", nvml.nvmlDeviceGetComputeMode(card))
    say("display", nvml.nvmlDeviceGetDisplayActive(card))
    for clock in (nvml.NVML_CLOCK_SM, nvml.NVML_CLOCK_MEM):
        now, most = nvml.nvmlDeviceGetClockInfo(card, clock), nvml.nvmlDeviceGetMaxClockInfo(card, clock)
        check(f"clock {clock} is within its range", 0 < now <= most)
    say("memory errors", nvml.nvmlDeviceGetTotalEccErrors(card, 1, 0))


def processes(card):
    lists = {
        "compute": nvml.nvmlDeviceGetComputeRunningProcesses,
        "compute v2": nvml.nvmlDeviceGetComputeRunningProcesses_v2,
        "graphics": nvml.nvmlDeviceGetGraphicsRunningProcesses,
    }
    say("processes before", {name: len(function(card)) for name, function in lists.items()})
    before = nvml.nvmlDeviceGetMemoryInfo(card).used
    with holder.holding() as pid:
        for name, function in lists.items():
            found = function(card)
            say(f"{name} processes", len(found))
            for process in found:
                check("it is the holder", process.pid == pid)
                check("it holds what it took", process.usedGpuMemory >= holder.MEMORY)
                check("its card is whole", process.gpuInstanceId == 0xFFFFFFFF)
                say("memory", process.usedGpuMemory)
        held = nvml.nvmlDeviceGetMemoryInfo(card).used - before
        check("the card's memory shows it", held == lists["compute"](card)[0].usedGpuMemory)
        check("it has a name", "python" in nvml.nvmlSystemGetProcessName(pid))
    say("processes after", {name: len(function(card)) for name, function in lists.items()})
    check("its memory came back", nvml.nvmlDeviceGetMemoryInfo(card).used == before)


def errors(card):
    expect("no such index", nvml.NVMLError_InvalidArgument, lambda: nvml.nvmlDeviceGetHandleByIndex(99))
    expect("no such uuid", nvml.NVMLError_NotFound, lambda: nvml.nvmlDeviceGetHandleByUUID("GPU-0"))
    expect("no fan", nvml.NVMLError_NotSupported, lambda: nvml.nvmlDeviceGetFanSpeed(card))
    expect("no parts of cards", nvml.NVMLError_NotSupported, lambda: nvml.nvmlDeviceGetMigMode(card))
    expect("no links", nvml.NVMLError_NotSupported, lambda: nvml.nvmlDeviceGetNvLinkState(card, 0))
    failure = expect("not our driver model", nvml.NVMLError_NotSupported, lambda: nvml.nvmlDeviceGetDriverModel(card))
    say("sentence", failure)


def main():
    expect("before init", nvml.NVMLError_Uninitialized, nvml.nvmlDeviceGetCount)
    nvml.nvmlInit()
    nvml.nvmlInit()
    versions()
    say("cards", nvml.nvmlDeviceGetCount())
    card = nvml.nvmlDeviceGetHandleByIndex(0)
    identity(card)
    readings(card)
    processes(card)
    errors(card)
    nvml.nvmlShutdown()
    say("cards after one shutdown", nvml.nvmlDeviceGetCount())
    nvml.nvmlShutdown()
    expect("after the last shutdown", nvml.NVMLError_Uninitialized, nvml.nvmlDeviceGetCount)


if __name__ == "__main__":
    main()

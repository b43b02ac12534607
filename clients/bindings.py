"""cuda.bindings.driver, as of CUDA 12 and of CUDA 13: the driver API call by call."""

import ctypes
import sys

from cuda.bindings import driver
from transcript import check, say

CODE = driver.CUresult

PTX = b"""
.version 7.0
.target sm_52
.address_size 64
.visible .entry scale(.param .u64 where, .param .u32 by) { ret; }
.visible .entry nothing() { ret; }
\0"""


def ask(function, *arguments):
    """The code of a call and whatever it gave."""
    code, *values = getattr(driver, function)(*arguments)
    return code, values[0] if len(values) == 1 else tuple(values)


def call(function, *arguments):
    """What a call gave; ends the program when it failed."""
    code, value = ask(function, *arguments)
    if code != CODE.CUDA_SUCCESS:
        sys.exit(f"{function}: {code}")
    return value


def refused(what, function, *arguments):
    """Prints with which code a call fails; ends the program when it succeeds."""
    code, value = ask(function, *arguments)
    if code == CODE.CUDA_SUCCESS:
        sys.exit(f"{what}: {function} succeeded with {value}")
    say(what, f"{code.name} {call('cuGetErrorString', code).decode()}")


def text(buffer):
    """The string in a buffer of which it fills only the beginning."""
    return buffer.split(b"\0")[0].decode()


def identity():
    refused("before init", "cuDeviceGetCount")
    call("cuInit", 0)
    call("cuInit", 0)
    say("driver version", call("cuDriverGetVersion"))
    say("cards", call("cuDeviceGetCount"))
    refused("no such card", "cuDeviceGet", 99)
    device = call("cuDeviceGet", 0)
    say("name", text(call("cuDeviceGetName", 96, device)))
    say("uuid", bytes(call("cuDeviceGetUuid", device).bytes).hex())
    total = call("cuDeviceTotalMem", device)
    say("total memory", total)
    for attribute in ("COMPUTE_CAPABILITY_MAJOR", "COMPUTE_CAPABILITY_MINOR", "MULTIPROCESSOR_COUNT", "WARP_SIZE",
                      "MAX_THREADS_PER_BLOCK", "PCI_BUS_ID", "UNIFIED_ADDRESSING", "MEMORY_POOLS_SUPPORTED"):
        number = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{attribute}")
        say(attribute.lower(), call("cuDeviceGetAttribute", number, device))
    say("bus id", text(call("cuDeviceGetPCIBusId", 32, device)))
    return device, total


def make_context(device):
    if driver.CUDA_VERSION >= 13000:
        return call("cuCtxCreate", None, 0, device)
    return call("cuCtxCreate", 0, device)


def memory(total):
    free, seen = call("cuMemGetInfo")
    check("total memory is the same from inside", seen == total)
    check("a context takes some of it", 0 < free < total)
    size = 8 << 20
    where = call("cuMemAlloc", size)
    check("an allocation takes memory", call("cuMemGetInfo")[0] <= free - size)
    source = bytes(range(256)) * (size // 256)
    back = bytearray(size)
    call("cuMemcpyHtoD", where, source, size)
    call("cuMemcpyDtoH", back, where, size)
    check("a copy there and back is the same", back == source)
    other = call("cuMemAlloc", size)
    call("cuMemcpyDtoD", other, where, size)
    call("cuMemsetD8", where, 0x5A, size // 2)
    call("cuMemcpyDtoH", back, where, size)
    check("set memory is set, the rest is not", back == b"\x5A" * (size // 2) + source[size // 2:])
    call("cuMemcpyDtoH", back, other, size)
    check("a copy on the card is the same", back == source)
    refused("more than there is", "cuMemAlloc", total + 1)
    refused("nothing", "cuMemAlloc", 0)
    refused("a pointer that is none", "cuMemFree", 0x1234)
    check("a refusal takes nothing", call("cuMemGetInfo")[0] <= free - 2 * size)
    for pointer in (where, other):
        call("cuMemFree", pointer)
    check("all came back", call("cuMemGetInfo")[0] == free)
    fill(free)


def fill(free):
    """Takes gibibytes until there are no more, and gives them back."""
    blocks = []
    while True:
        code, block = ask("cuMemAlloc", 1 << 30)
        if code != CODE.CUDA_SUCCESS:
            break
        blocks.append(block)
    say("the card is full", code.name)
    check("about all could be taken", free // (1 << 30) - 1 <= len(blocks) <= free // (1 << 30))
    for block in blocks:
        call("cuMemFree", block)
    check("all came back again", call("cuMemGetInfo")[0] == free)


def other_memory():
    host = call("cuMemHostAlloc", 4096, 0)
    ctypes.memset(int(host), 7, 4096)
    managed = call("cuMemAllocManaged", 4096, driver.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value)
    call("cuMemcpy", managed, int(host), 4096)
    call("cuCtxSynchronize")
    check("managed memory is the host's too", ctypes.string_at(int(managed), 4096) == b"\7" * 4096)
    call("cuMemFree", managed)
    call("cuMemFreeHost", host)


def kernels(name, load, get, unload, launch_as=lambda handle: handle):
    module = call(load, *([PTX] if load == "cuModuleLoadData" else [PTX, None, None, 0, None, None, 0]))
    refused(f"{name}: no such kernel", get, module, b"missing")
    kernel = launch_as(call(get, module, b"scale"))
    where = call("cuMemAlloc", 4096)
    call("cuMemsetD8", where, 3, 4096)
    arguments = ((int(where), 2), (ctypes.c_uint64, ctypes.c_uint32))
    call("cuLaunchKernel", kernel, 4, 1, 1, 256, 1, 1, 0, None, arguments, 0)
    call("cuCtxSynchronize")
    back = bytearray(4096)
    call("cuMemcpyDtoH", back, where, 4096)
    say(f"{name}: first bytes after a launch", back[:4].hex())
    refused(f"{name}: too many threads", "cuLaunchKernel", kernel, 1, 1, 1, 4096, 1, 1, 0, None, arguments, 0)
    refused(f"{name}: an empty grid", "cuLaunchKernel", kernel, 0, 1, 1, 1, 1, 1, 0, None, arguments, 0)
    nothing = launch_as(call(get, module, b"nothing"))
    call("cuLaunchKernel", nothing, 1, 1, 1, 1, 1, 1, 0, None, None, 0)
    call("cuCtxSynchronize")
    call("cuMemFree", where)
    call(unload, module)


def streams():
    stream = call("cuStreamCreate", driver.CUstream_flags.CU_STREAM_NON_BLOCKING.value)
    first, last = call("cuEventCreate", 0), call("cuEventCreate", 0)
    size = 1 << 20
    pool = call("cuMemAllocAsync", size, stream)
    source, back = bytearray(b"\xC3" * size), bytearray(size)
    call("cuEventRecord", first, stream)
    call("cuMemcpyHtoDAsync", pool, source, size, stream)
    call("cuMemcpyDtoHAsync", back, pool, size, stream)
    call("cuEventRecord", last, stream)
    call("cuStreamWaitEvent", stream, first, 0)
    call("cuStreamSynchronize", stream)
    check("copies on a stream arrive", back == source)
    say("the stream is done", ask("cuStreamQuery", stream)[0].name)
    say("the event is past", ask("cuEventQuery", last)[0].name)
    check("time passes forward", call("cuEventElapsedTime", first, last) >= 0)
    call("cuMemFreeAsync", pool, stream)
    call("cuStreamSynchronize", stream)
    for event in (first, last):
        call("cuEventDestroy", event)
    call("cuStreamDestroy", stream)


def main():
    device, total = identity()
    refused("memory without a context", "cuMemAlloc", 4096)
    context = make_context(device)
    check("it is the current one", int(call("cuCtxGetCurrent")) == int(context))
    say("of card", int(call("cuCtxGetDevice")))
    memory(total)
    other_memory()
    refused("rubbish for a module", "cuModuleLoadData", b"this is no module\0")
    kernels("module", "cuModuleLoadData", "cuModuleGetFunction", "cuModuleUnload")
    kernels("library", "cuLibraryLoadData", "cuLibraryGetKernel", "cuLibraryUnload",
            lambda kernel: driver.CUfunction(int(kernel)))
    streams()
    call("cuCtxDestroy", context)
    refused("memory after the context", "cuMemAlloc", 4096)
    primary = call("cuDevicePrimaryCtxRetain", device)
    check("retained twice, it is the same", int(call("cuDevicePrimaryCtxRetain", device)) == int(primary))
    call("cuCtxSetCurrent", primary)
    call("cuMemFree", call("cuMemAlloc", 4096))
    for _ in range(2):
        call("cuDevicePrimaryCtxRelease", device)


if __name__ == "__main__":
    main()

"""Triton without PyTorch: its driver layer, compiled by the system's compiler, and a kernel of its own compiled and launched."""

import ctypes
import os
import tempfile

# What Triton compiles is kept in this run's folder: both runs compile, and none reads what another has left.
os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp(dir=os.getcwd())

import triton
import triton.language as tl
from transcript import check, expect, say
from triton.backends.nvidia.driver import CudaDriver

SIZE = 1024


class Array:
    """Device memory in the only form that a launch asks for: a pointer and the kind of its elements."""

    dtype = "fp32"

    def __init__(self, cuda):
        pointer = ctypes.c_uint64()
        check("memory", cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(4 * SIZE)) == 0)
        self.pointer = pointer.value

    def data_ptr(self):
        return self.pointer


@triton.jit
def double(there, here, size, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < size
    tl.store(there + place, 2 * tl.load(here + place, mask=inside), mask=inside)


def identity():
    check("its driver is active", CudaDriver.is_active())
    driver = triton.runtime.driver.active
    say("driver", type(driver).__name__)
    say("target", driver.get_current_target())
    say("properties", sorted(driver.utils.get_device_properties(0).items()))
    say("capability", driver.utils.get_device_capability(0))
    return driver


def kernels(driver, cuda):
    here, there = Array(cuda), Array(cuda)
    compiled = double[(4,)](there, here, SIZE, BLOCK=256)
    check("the context is done", cuda.cuCtxSynchronize() == 0)
    say("name", compiled.name)
    say("shared memory", compiled.metadata.shared)
    say("registers and spills", (compiled.n_regs, compiled.n_spills))
    check("it is machine code", compiled.asm["cubin"][:4] == b"\x7fELF")
    code, device = compiled.asm["cubin"], driver.get_current_device()
    module, function, *_ = driver.utils.load_binary(compiled.name, code, compiled.metadata.shared, device)
    check("loaded by hand", module != 0 and function != 0)
    driver.utils.unload_module(module)
    failure = expect("no such kernel", RuntimeError, lambda: driver.utils.load_binary("missing", code, 0, device))
    say("it says", failure)
    failure = expect("rubbish", RuntimeError, lambda: driver.utils.load_binary("double", b"this is no code", 0, device))
    say("it says", failure)
    stream = driver.get_current_stream(device)
    say("a capture", driver.utils.is_stream_capturing(stream))


def main():
    driver = identity()
    kernels(driver, ctypes.CDLL("libcuda.so.1"))


if __name__ == "__main__":
    main()

"""A program that holds device memory while others look: a context and one allocation, on the driver API alone.

Run as a program it makes them, prints the word "holding" and keeps them until its standard input closes.
"""

import contextlib
import ctypes
import os
import subprocess
import sys

MEMORY = 64 << 20


@contextlib.contextmanager
def holding():
    """Runs the holder; gives its pid once it holds its memory, and ends it."""
    command = [sys.executable, os.path.abspath(__file__)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        if holder.stdout.readline() != "holding\n":
            sys.exit("the holder of device memory did not start")
        yield holder.pid
        holder.stdin.close()
        if holder.wait(timeout=60) != 0:
            sys.exit(f"the holder of device memory ended with {holder.returncode}")


def hold():
    cuda = ctypes.CDLL("libcuda.so.1")

    def call(name, *arguments):
        code = getattr(cuda, name)(*arguments)
        if code != 0:
            sys.exit(f"{name}: error {code}")

    device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(MEMORY))
    print("holding", flush=True)
    sys.stdin.read()
    call("cuMemFree_v2", memory)
    call("cuDevicePrimaryCtxRelease_v2", device)


if __name__ == "__main__":
    hold()

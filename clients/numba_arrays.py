"""numba-cuda: device arrays there and back, streams and events, compiled kernels and their launches.

A simulated card does not compute: what a kernel would write stays as it was.
"""

import os

# Grids of a few blocks are what is wanted here; read when numba is imported.
os.environ["NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS"] = "0"

import numpy as np
from numba import cuda
from transcript import check, expect, say


@cuda.jit
def add(left, right, out):
    place = cuda.grid(1)
    if place < out.size:
        out[place] = left[place] + right[place]


@cuda.jit("void(float32[::1], float32)")
def scale(values, by):
    place = cuda.grid(1)
    if place < values.size:
        values[place] *= by


@cuda.jit
def reverse(values):
    block = cuda.shared.array(64, dtype=np.int32)
    place = cuda.threadIdx.x
    block[place] = values[place]
    cuda.syncthreads()
    values[place] = block[63 - place]
    cuda.atomic.add(values, 0, 1)


@cuda.jit
def meet(values):
    grid = cuda.cg.this_grid()
    values[cuda.grid(1)] += 1
    grid.sync()


def identity():
    check("CUDA is available", cuda.is_available())
    say("cards", len(cuda.gpus))
    device = cuda.get_current_device()
    say("name", device.name.decode() if isinstance(device.name, bytes) else device.name)
    say("compute capability", tuple(device.compute_capability))
    say("uuid", device.uuid)
    say("multiprocessors", device.MULTIPROCESSOR_COUNT)


def arrays():
    values = np.arange(1 << 20, dtype=np.float32)
    there = cuda.to_device(values)
    check("an array there and back is the same", np.array_equal(there.copy_to_host(), values))
    other = cuda.device_array_like(there)
    other.copy_to_device(there)
    check("a copy on the card is the same", np.array_equal(other.copy_to_host(), values))
    check("a part of it is that part", np.array_equal(there[1000:2000].copy_to_host(), values[1000:2000]))
    grid = np.arange(60, dtype=np.int64).reshape(3, 4, 5)
    check("three dimensions survive", np.array_equal(cuda.to_device(grid).copy_to_host(), grid))
    pinned = cuda.pinned_array(4096, dtype=np.int32)
    pinned[:] = np.arange(4096)
    stream = cuda.stream()
    moved = cuda.to_device(pinned, stream=stream)
    back = moved.copy_to_host(stream=stream)
    stream.synchronize()
    check("a stream moves the same", np.array_equal(back, pinned))
    managed = cuda.managed_array(256, dtype=np.int32)
    managed[:] = 9
    check("managed memory is the host's too", int(managed.sum()) == 9 * 256)


def memory():
    context = cuda.current_context()
    # What was let go of earlier is freed late, unless it is asked for.
    context.memory_manager.deallocations.clear()
    before = context.get_memory_info()
    say("total memory", before.total)
    held = cuda.device_array(64 << 20, dtype=np.uint8)
    check("an array takes memory", context.get_memory_info().free <= before.free - (64 << 20))
    del held
    context.memory_manager.deallocations.clear()
    check("and gives it back", context.get_memory_info().free == before.free)
    failure = expect(
        "more than there is", cuda.cudadrv.driver.CudaAPIError, lambda: cuda.device_array(before.total + 1, np.uint8)
    )
    check("it is out of memory", "OUT_OF_MEMORY" in str(failure))


def kernels():
    left = cuda.to_device(np.ones(1024, dtype=np.float32))
    out = cuda.to_device(np.full(1024, 5, dtype=np.float32))
    add[8, 128](left, left, out)
    cuda.synchronize()
    say("after a launch", out.copy_to_host()[:3].tolist())
    host = np.full(1024, 2, dtype=np.float32)
    add.forall(1024)(left, left, host)
    say("after a launch with a host array", host[:3].tolist())
    stream = cuda.stream()
    scale[8, 128, stream](out, np.float32(3))
    stream.synchronize()
    say("after a launch on a stream", out.copy_to_host()[:3].tolist())
    numbers = cuda.to_device(np.arange(64, dtype=np.int32))
    reverse[1, 64](numbers)
    cuda.synchronize()
    say("after a launch with shared memory", numbers.copy_to_host()[:3].tolist())
    meet[2, 32](numbers)
    cuda.synchronize()
    say("after a cooperative launch", numbers.copy_to_host()[:3].tolist())
    failure = expect("too many threads", Exception, lambda: add[1, 4096](left, left, out))
    check("a value is not valid", "INVALID_VALUE" in str(failure))


def events():
    first, last = cuda.event(), cuda.event()
    first.record()
    cuda.to_device(np.zeros(1 << 20, dtype=np.uint8))
    last.record()
    last.synchronize()
    check("the event is past", last.query())
    check("time passes forward", first.elapsed_time(last) >= 0)


def main():
    identity()
    arrays()
    memory()
    kernels()
    events()
    cuda.close()
    say("closed", "yes")


if __name__ == "__main__":
    main()

"""CuPy on a real card: arrays, a kernel from source, streams, pools and its limits."""

import cupy
import numpy


def say(what, value):
    print(f"{what}: {value}", flush=True)


say("cards", cupy.cuda.runtime.getDeviceCount())
a = cupy.arange(1 << 20, dtype=cupy.float32)
say("sum", float((a % 7).sum()))
square = cupy.RawKernel(
    'extern "C" __global__ void square(const float* a, float* b, int n) {'
    " int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) b[i] = a[i] * a[i]; }",
    "square",
)
b = cupy.empty_like(a)
square((4096,), (256,), (a, b, a.size))
say("kernel", bool(numpy.allclose(cupy.asnumpy(b), cupy.asnumpy(a) ** 2)))
with cupy.cuda.Stream(non_blocking=True) as stream:
    c = a + b
    stream.synchronize()
say("on a stream", bool((c == a + b).all()))
pool = cupy.cuda.MemoryAsyncPool()
cupy.cuda.set_allocator(pool.malloc)
d = cupy.ones(1 << 24, dtype=cupy.uint8)
say("from a pool", int(d.sum()))
free, total = cupy.cuda.runtime.memGetInfo()
say("free is within the total", 0 < free <= total)
cupy.cuda.set_allocator(None)
try:
    cupy.empty(total + (1 << 30), dtype=cupy.uint8)
    say("more than there is", "given")
except (cupy.cuda.memory.OutOfMemoryError, cupy.cuda.runtime.CUDARuntimeError) as failure:
    say("more than there is", type(failure).__name__)

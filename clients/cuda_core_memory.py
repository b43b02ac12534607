"""cuda-core's memory resources: pools of its own, managed and pinned pools, virtual memory, memory of graphs."""

import numpy as np
from cuda.core import (
    Device,
    DeviceMemoryResource,
    DeviceMemoryResourceOptions,
    GraphMemoryResource,
    LegacyPinnedMemoryResource,
    ManagedMemoryResource,
    VirtualMemoryResource,
    VirtualMemoryResourceOptions,
)
from cuda.core._utils.cuda_utils import CUDAError
from transcript import check, expect, say

SIZE = 8 << 20


def view(buffer):
    """Host memory as bytes."""
    return np.from_dlpack(buffer).view(np.uint8)


def filled(buffer, stream, there):
    """Sets a buffer, copies it on the card and looks at what arrived in host memory."""
    buffer.fill(0x5A, stream=stream)
    buffer.copy_to(there, stream=stream)
    stream.sync()
    return bool(np.all(view(there) == 0x5A))


def pools(device, stream, there):
    resource = DeviceMemoryResource(device, DeviceMemoryResourceOptions(max_size=4 * SIZE))
    before = resource.attributes.used_mem_current
    first = resource.allocate(SIZE, stream=stream)
    check("a pool of its own: bytes arrive", filled(first, stream, there))
    check("the pool counts", resource.attributes.used_mem_current - before == SIZE)
    check("it reserves at least that", resource.attributes.reserved_mem_current >= SIZE)
    rest = [resource.allocate(SIZE, stream=stream) for _ in range(3)]
    failure = expect("more than the pool may have", Exception, lambda: resource.allocate(SIZE, stream=stream))
    check("it is out of memory", "OUT_OF_MEMORY" in str(failure))
    for buffer in (first, *rest):
        buffer.close(stream)
    stream.sync()
    say("used in the end", resource.attributes.used_mem_current - before)
    resource.close()


def managed(device, stream, there):
    try:
        resource = ManagedMemoryResource()
    except (CUDAError, RuntimeError) as failure:
        # CUDA 12 has no such pools, and not every driver of CUDA 13.
        say("no managed pools", failure)
        return
    buffer = resource.allocate(SIZE, stream=stream)
    check("managed memory: bytes arrive", filled(buffer, stream, there))
    say("the host's too", buffer.is_host_accessible)
    buffer.close(stream)
    stream.sync()
    resource.close()


def virtual(device, stream, there):
    resource = VirtualMemoryResource(device, VirtualMemoryResourceOptions(handle_type=None, gpu_direct_rdma=False))
    buffer = resource.allocate(SIZE)
    check("virtual memory: bytes arrive", filled(buffer, stream, there))
    larger = resource.modify_allocation(buffer, 2 * SIZE)
    say("grown to", larger.size)
    failure = expect("more than there is", Exception, lambda: resource.allocate(1 << 50))
    check("it is out of memory", "OUT_OF_MEMORY" in str(failure))
    larger.close(stream)


def graphs(device, stream, there):
    resource = GraphMemoryResource(device)
    builder = device.create_graph_builder().begin_building()
    buffer = resource.allocate(SIZE, stream=builder)
    buffer.fill(0x5A, stream=builder)
    buffer.copy_to(there, stream=builder)
    buffer.close(builder)
    graph = builder.end_building().complete()
    view(there)[:] = 0
    for _ in range(2):
        graph.launch(stream)
    stream.sync()
    check("memory of a graph: bytes arrive", bool(np.all(view(there) == 0x5A)))
    check("the graph's memory is kept", resource.attributes.reserved_mem_current >= SIZE)
    graph.close()
    builder.close()
    resource.trim()
    say("kept after a trim", resource.attributes.reserved_mem_current)


def main():
    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    there = LegacyPinnedMemoryResource().allocate(SIZE)
    for part in (pools, managed, virtual, graphs):
        part(device, stream, there)
    stream.close()


if __name__ == "__main__":
    main()

"""cuda-core: devices, buffers from pools, streams, events and a program launched from PTX."""

import numpy as np
from cuda.core import Device, EventOptions, LaunchConfig, LegacyPinnedMemoryResource, ObjectCode, launch, system
from transcript import check, expect, say

PTX = b"""
.version 7.0
.target sm_52
.address_size 64
.visible .entry scale(.param .u64 where, .param .u32 by) { ret; }
"""


SIZE = 1 << 20


def identity():
    say("cards", system.get_num_devices())
    device = Device(0)
    say("name", device.name)
    say("uuid", device.uuid)
    say("compute capability", tuple(device.compute_capability))
    say("multiprocessors", device.properties.multiprocessor_count)
    return device


def buffers(device, stream):
    timed = EventOptions(timing_enabled=True)
    pinned = LegacyPinnedMemoryResource()
    source, back = pinned.allocate(SIZE), pinned.allocate(SIZE)
    np.from_dlpack(source)[:] = np.arange(SIZE) % 100
    here, there = device.allocate(SIZE, stream=stream), device.allocate(SIZE, stream=stream)
    first = stream.record(options=timed)
    here.copy_from(source, stream=stream)
    there.copy_from(here, stream=stream)
    there.copy_to(back, stream=stream)
    last = stream.record(options=timed)
    stream.sync()
    check("bytes there, across and back are the same", np.array_equal(np.from_dlpack(back), np.from_dlpack(source)))
    check("the event is past", last.is_done)
    check("time passes forward", last - first >= 0)
    failure = expect("more than there is", Exception, lambda: device.allocate(1 << 50, stream=stream))
    check("it is out of memory", "OUT_OF_MEMORY" in str(failure))
    there.close(stream)
    return here


def kernels(stream, buffer):
    code = ObjectCode.from_ptx(PTX)
    kernel = code.get_kernel("scale")
    say("threads of a block", kernel.attributes.max_threads_per_block)
    say("arguments", kernel.num_arguments)
    launch(stream, LaunchConfig(grid=4, block=256), kernel, buffer, 2)
    stream.sync()
    failure = expect("no such kernel", Exception, lambda: code.get_kernel("missing"))
    check("it is not found", "NOT_FOUND" in str(failure))


def main():
    device = identity()
    device.set_current()
    stream = device.create_stream()
    buffer = buffers(device, stream)
    kernels(stream, buffer)
    buffer.close(stream)
    stream.sync()
    stream.close()


if __name__ == "__main__":
    main()

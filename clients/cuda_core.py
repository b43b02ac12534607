"""cuda-core: devices, buffers from pools, streams, events and a program launched from PTX."""

from cuda.core import Device, EventOptions, LaunchConfig, ObjectCode, launch, system
from transcript import check, expect, say

PTX = b"""
.version 7.0
.target sm_52
.address_size 64
.visible .entry scale(.param .u64 where, .param .u32 by) { ret; }
"""


def main():
    say("cards", system.get_num_devices() if hasattr(system, "get_num_devices") else system.num_devices)
    device = Device(0)
    say("name", device.name)
    say("uuid", device.uuid)
    say("compute capability", tuple(device.compute_capability))
    say("multiprocessors", device.properties.multiprocessor_count)
    device.set_current()
    stream = device.create_stream()
    first = stream.record(options=EventOptions(enable_timing=True))
    here, there = device.allocate(1 << 20, stream=stream), device.allocate(1 << 20, stream=stream)
    there.copy_from(here, stream=stream)
    last = stream.record(options=EventOptions(enable_timing=True))
    stream.sync()
    check("the event is past", last.is_done)
    check("time passes forward", last - first >= 0)
    say("size", here.size)
    kernel = ObjectCode.from_ptx(PTX).get_kernel("scale")
    say("threads of a block", kernel.attributes.max_threads_per_block())
    say("arguments", kernel.num_arguments)
    launch(stream, LaunchConfig(grid=4, block=256), kernel, here, 2)
    stream.sync()
    expect("no such kernel", Exception, lambda: ObjectCode.from_ptx(PTX).get_kernel("missing"))
    expect("more than there is", Exception, lambda: device.allocate(1 << 50, stream=stream))
    for buffer in (here, there):
        buffer.close(stream)
    stream.sync()
    stream.close()


if __name__ == "__main__":
    main()

"""nvitop -1: the whole table, with and without a program on the card."""

import os
import re

import holder
import pynvml
import tool
from transcript import check, say


def table(*options):
    """The lines about cards and processes; those about this machine's processors and memory left out."""
    lines = tool.output("nvitop", "-1", "--ascii", *options).splitlines()
    return [line for line in lines if re.match(r"^[|] +(\d+ |N/A|No running|GPU )", line) or "NVITOP" in line]


def visible():
    """Which cards are CUDA's: nvitop asks the driver for their UUIDs and matches them with NVML's."""
    pynvml.nvmlInit()
    uuid = pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(0))
    pynvml.nvmlShutdown()
    for wanted in ("0", uuid, uuid[:12], "5", ""):
        os.environ["CUDA_VISIBLE_DEVICES"] = wanted
        shown = [line for line in table("--only-visible") if re.match(r"^[|] +0  ", line)]
        say(f"cards with CUDA_VISIBLE_DEVICES={wanted!r}", len(shown))
    del os.environ["CUDA_VISIBLE_DEVICES"]


def main():
    for line in table():
        say("idle", line)
    check("it says that nothing runs", any("No running processes found" in line for line in table()))
    with holder.holding() as pid:
        row = next((line for line in table() if re.search(rf"[|] +0 +{pid} ", line)), None)
        check("the holder has a row", row)
        fields = row.split()
        say("memory", next(field for field in fields if field.endswith("MiB")))
        check("it is a computing process", fields[3] == "C")
        check("it is found on this machine", "No Such Process" not in row)
    visible()
    check("afterwards nothing runs", any("No running processes found" in line for line in table()))


if __name__ == "__main__":
    main()

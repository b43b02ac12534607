"""gpustat -a and --json, with and without a program on the card."""

import json

import holder
import tool
from transcript import check, say


def state():
    """The JSON document, without what belongs to this machine and this moment."""
    document = json.loads(tool.output("gpustat", "--json"))
    del document["hostname"], document["query_time"]
    return document


def main():
    idle = state()
    say("idle", json.dumps(idle, sort_keys=True))
    check("no card is in use", all(card["processes"] == [] for card in idle["gpus"]))
    table = tool.output("gpustat", "-a", "--no-color").splitlines()
    for line in table[1:]:
        say("table", line)
    with holder.holding() as pid:
        (card,) = state()["gpus"]
        (process,) = card["processes"]
        check("the holder is on the card", process["pid"] == pid)
        check("it is known by its command", "python" in process["command"])
        say("its memory", process["gpu_memory_usage"])
        check("the card's memory shows it", card["memory.used"] >= process["gpu_memory_usage"] >= holder.MEMORY >> 20)
        (row,) = tool.output("gpustat", "-p", "--no-color", "--no-header").splitlines()
        check("the table shows its pid", f"/{pid}(" in row)
    check("afterwards all is as before", state() == idle)


if __name__ == "__main__":
    main()

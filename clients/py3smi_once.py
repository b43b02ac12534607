"""py3smi: a tool on the NVML functions of ten years ago, with their old structures."""

import holder
import tool
from transcript import check, say


def rows():
    """The table's rows, without the line with the date."""
    return [line for line in tool.output("py3smi").splitlines()[1:] if line.startswith("|")]


def main():
    for row in rows():
        say("idle", row)
    with holder.holding() as pid:
        (row,) = [row for row in rows() if f" {pid} " in row]
        say("memory", row.split()[-2])
        check("it is known by its command", "holder.py" in row)
    check("afterwards it is gone", not any(f" {pid} " in row for row in rows()))


if __name__ == "__main__":
    main()

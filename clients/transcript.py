"""What a client saw, one line a fact, the same at every run: equal transcripts mean equal results.

A fact that changes from run to run (a pid, a time, how much is free) is checked where it is read and printed as what
was checked, never as itself.
"""

import sys


def say(what, value):
    """Prints one fact."""
    print(f"{what}: {value}", flush=True)


def check(what, holds):
    """Prints that something holds; ends the program where it does not."""
    if not holds:
        sys.exit(f"{what}: does not hold")
    say(what, "yes")


def expect(what, error, call):
    """Prints that a call fails with `error`, an exception class; ends the program where it does anything else."""
    try:
        answer = call()
    except error as failure:
        say(what, type(failure).__name__)
        return failure
    sys.exit(f"{what}: answered {answer!r}, no {error.__name__}")

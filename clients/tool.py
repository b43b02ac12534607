"""Runs a command-line tool of this environment and gives what it printed."""

import os
import subprocess
import sys


def output(name, *arguments):
    """The tool's standard output; ends the program when it fails or complains."""
    tool = os.path.join(os.path.dirname(sys.executable), name)
    done = subprocess.run([tool, *arguments], capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        sys.exit(f"{name} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout

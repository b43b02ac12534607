"""Programs that end badly, each in the way that its argument says: what their caller sees must not depend on gpupool."""

import os
import sys

from cuda.bindings import driver
from transcript import say


def call(function, *arguments):
    """What a call gave; raises when it failed, as programs without a plan for that do."""
    code, *values = getattr(driver, function)(*arguments)
    if code != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"{function}: {code.name}")
    return values[0] if values else None


def prepare():
    call("cuInit", 0)
    device = call("cuDeviceGet", 0)
    call("cuCtxSetCurrent", call("cuDevicePrimaryCtxRetain", device))
    say("memory", call("cuMemAlloc", 1 << 20) != 0)
    return call("cuDeviceTotalMem", device)


def main():
    how = sys.argv[1]
    total = prepare()
    if how == "uncaught":
        call("cuMemAlloc", total + 1)
    elif how == "code":
        # Ends with the driver's own code, without any destructor.
        os._exit(driver.cuMemAlloc(total + 1)[0].value)
    elif how == "abort":
        os.abort()
    elif how == "no-such-card":
        call("cuDeviceGet", 1000)
    sys.exit(f"no ending is called {how}")


if __name__ == "__main__":
    main()

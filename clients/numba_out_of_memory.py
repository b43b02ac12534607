"""numba-cuda runs out of memory and nobody catches it."""

import numpy as np
from numba import cuda
from transcript import say

say("a small array", cuda.to_device(np.arange(4)).copy_to_host().tolist())
cuda.device_array(1 << 50, dtype=np.uint8)

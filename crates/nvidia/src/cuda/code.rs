//! Code: attributes of functions, what is linked, when it is loaded.

use crate::declare::constants;

constants! {
    /// What `cuFuncGetAttribute` is asked for. Sizes in bytes.
    enum CUfunction_attribute = i32 {
        CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0,
        CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
        CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES = 2,
        CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3,
        CU_FUNC_ATTRIBUTE_NUM_REGS = 4,
        CU_FUNC_ATTRIBUTE_PTX_VERSION = 5,
        CU_FUNC_ATTRIBUTE_BINARY_VERSION = 6,
        CU_FUNC_ATTRIBUTE_CACHE_MODE_CA = 7,
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
        CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT = 9,
        CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET = 10,
        CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH = 11,
        CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT = 12,
        CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH = 13,
        CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14,
        CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE = 15,
        CU_FUNC_ATTRIBUTE_DEVICE_NODE_UPDATE_SUPPORTED = 16 since 13,
        CU_FUNC_ATTRIBUTE_SHARED_MEMORY_MODE = 17 since 13,
    }

    /// Share of the multiprocessor's memory that a function would have shared: percent, or one of these.
    enum CUshared_carveout = i32 {
        CU_SHAREDMEM_CARVEOUT_DEFAULT = -1,
        CU_SHAREDMEM_CARVEOUT_MAX_SHARED = 100,
        CU_SHAREDMEM_CARVEOUT_MAX_L1 = 0,
    }

    /// What is given to the linker.
    enum CUjitInputType = u32 {
        CU_JIT_INPUT_CUBIN = 0,
        CU_JIT_INPUT_PTX = 1,
        CU_JIT_INPUT_FATBINARY = 2,
        CU_JIT_INPUT_OBJECT = 3,
        CU_JIT_INPUT_LIBRARY = 4,
        CU_JIT_INPUT_NVVM = 5,
        CU_JIT_NUM_INPUT_TYPES = 6,
    }

    /// When code is read.
    enum CUmoduleLoadingMode = u32 {
        CU_MODULE_EAGER_LOADING = 1,
        CU_MODULE_LAZY_LOADING = 2,
    }

    /// Whether a function's code was read.
    enum CUfunctionLoadingState = u32 {
        CU_FUNCTION_LOADING_STATE_UNLOADED = 0,
        CU_FUNCTION_LOADING_STATE_LOADED = 1,
    }

    /// Flags of the occupancy calculator.
    enum CUoccupancy_flags = u32 {
        CU_OCCUPANCY_DEFAULT = 0x00,
        CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE = 0x01,
    }
}

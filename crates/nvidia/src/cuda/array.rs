//! Arrays: what they are made of, sparse ones, what textures look at, copies of boxes.
//!
//! Names that end in `_v1` are those of CUDA before 3.2, with 32 bits for sizes and pointers of a device: the calls
//! without a version in their name take them to this day.

use super::memory::CUmemorytype;
use crate::declare::{constants, structures};

constants! {
    /// What an element of an array is made of.
    enum CUarray_format = u32 {
        CU_AD_FORMAT_UNSIGNED_INT8 = 0x01,
        CU_AD_FORMAT_UNSIGNED_INT16 = 0x02,
        CU_AD_FORMAT_UNSIGNED_INT32 = 0x03,
        CU_AD_FORMAT_SIGNED_INT8 = 0x08,
        CU_AD_FORMAT_SIGNED_INT16 = 0x09,
        CU_AD_FORMAT_SIGNED_INT32 = 0x0A,
        CU_AD_FORMAT_HALF = 0x10,
        CU_AD_FORMAT_FLOAT = 0x20,
        CU_AD_FORMAT_NV12 = 0xB0,
        CU_AD_FORMAT_UNORM_INT8X1 = 0xC0,
        CU_AD_FORMAT_UNORM_INT8X2 = 0xC1,
        CU_AD_FORMAT_UNORM_INT8X4 = 0xC2,
        CU_AD_FORMAT_UNORM_INT16X1 = 0xC3,
        CU_AD_FORMAT_UNORM_INT16X2 = 0xC4,
        CU_AD_FORMAT_UNORM_INT16X4 = 0xC5,
        CU_AD_FORMAT_SNORM_INT8X1 = 0xC6,
        CU_AD_FORMAT_SNORM_INT8X2 = 0xC7,
        CU_AD_FORMAT_SNORM_INT8X4 = 0xC8,
        CU_AD_FORMAT_SNORM_INT16X1 = 0xC9,
        CU_AD_FORMAT_SNORM_INT16X2 = 0xCA,
        CU_AD_FORMAT_SNORM_INT16X4 = 0xCB,
        CU_AD_FORMAT_BC1_UNORM = 0x91,
        CU_AD_FORMAT_BC1_UNORM_SRGB = 0x92,
        CU_AD_FORMAT_BC2_UNORM = 0x93,
        CU_AD_FORMAT_BC2_UNORM_SRGB = 0x94,
        CU_AD_FORMAT_BC3_UNORM = 0x95,
        CU_AD_FORMAT_BC3_UNORM_SRGB = 0x96,
        CU_AD_FORMAT_BC4_UNORM = 0x97,
        CU_AD_FORMAT_BC4_SNORM = 0x98,
        CU_AD_FORMAT_BC5_UNORM = 0x99,
        CU_AD_FORMAT_BC5_SNORM = 0x9A,
        CU_AD_FORMAT_BC6H_UF16 = 0x9B,
        CU_AD_FORMAT_BC6H_SF16 = 0x9C,
        CU_AD_FORMAT_BC7_UNORM = 0x9D,
        CU_AD_FORMAT_BC7_UNORM_SRGB = 0x9E,
        CU_AD_FORMAT_P010 = 0x9F,
        CU_AD_FORMAT_P016 = 0xA1,
        CU_AD_FORMAT_NV16 = 0xA2,
        CU_AD_FORMAT_P210 = 0xA3,
        CU_AD_FORMAT_P216 = 0xA4,
        CU_AD_FORMAT_YUY2 = 0xA5,
        CU_AD_FORMAT_Y210 = 0xA6,
        CU_AD_FORMAT_Y216 = 0xA7,
        CU_AD_FORMAT_AYUV = 0xA8,
        CU_AD_FORMAT_Y410 = 0xA9,
        CU_AD_FORMAT_Y416 = 0xB1,
        CU_AD_FORMAT_Y444_PLANAR8 = 0xB2,
        CU_AD_FORMAT_Y444_PLANAR10 = 0xB3,
        CU_AD_FORMAT_YUV444_8bit_SemiPlanar = 0xB4,
        CU_AD_FORMAT_YUV444_16bit_SemiPlanar = 0xB5,
        CU_AD_FORMAT_UNORM_INT_101010_2 = 0x50,
        CU_AD_FORMAT_UINT8_PACKED_422 = 0x51 since 13,
        CU_AD_FORMAT_UINT8_PACKED_444 = 0x52 since 13,
        CU_AD_FORMAT_UINT8_SEMIPLANAR_420 = 0x53 since 13,
        CU_AD_FORMAT_UINT16_SEMIPLANAR_420 = 0x54 since 13,
        CU_AD_FORMAT_UINT8_SEMIPLANAR_422 = 0x55 since 13,
        CU_AD_FORMAT_UINT16_SEMIPLANAR_422 = 0x56 since 13,
        CU_AD_FORMAT_UINT8_SEMIPLANAR_444 = 0x57 since 13,
        CU_AD_FORMAT_UINT16_SEMIPLANAR_444 = 0x58 since 13,
        CU_AD_FORMAT_UINT8_PLANAR_420 = 0x59 since 13,
        CU_AD_FORMAT_UINT16_PLANAR_420 = 0x5A since 13,
        CU_AD_FORMAT_UINT8_PLANAR_422 = 0x5B since 13,
        CU_AD_FORMAT_UINT16_PLANAR_422 = 0x5C since 13,
        CU_AD_FORMAT_UINT8_PLANAR_444 = 0x5D since 13,
        CU_AD_FORMAT_UINT16_PLANAR_444 = 0x5E since 13,
    }

    // Flags of an array.
    u32 {
        CUDA_ARRAY3D_LAYERED = 1,
        CUDA_ARRAY3D_SURFACE_LDST = 2,
        CUDA_ARRAY3D_CUBEMAP = 4,
        CUDA_ARRAY3D_TEXTURE_GATHER = 8,
        CUDA_ARRAY3D_DEPTH_TEXTURE = 16,
        CUDA_ARRAY3D_COLOR_ATTACHMENT = 32,
        CUDA_ARRAY3D_SPARSE = 64,
        CUDA_ARRAY3D_DEFERRED_MAPPING = 128,
        CUDA_ARRAY3D_VIDEO_ENCODE_DECODE = 256,
    }

    /// What a texture or surface looks at, and what [`CUarrayMapInfo`] maps into.
    enum CUresourcetype = u32 {
        CU_RESOURCE_TYPE_ARRAY = 0,
        CU_RESOURCE_TYPE_MIPMAPPED_ARRAY = 1,
        CU_RESOURCE_TYPE_LINEAR = 2,
        CU_RESOURCE_TYPE_PITCH2D = 3,
    }

    /// Which part of a sparse array is mapped.
    enum CUarraySparseSubresourceType = u32 {
        CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL = 0,
        CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL = 1,
    }

    /// Whether a part of a sparse array is mapped or unmapped.
    enum CUmemOperationType = u32 {
        CU_MEM_OPERATION_TYPE_MAP = 1,
        CU_MEM_OPERATION_TYPE_UNMAP = 2,
    }

    /// What is mapped into a sparse array.
    enum CUmemHandleType = u32 {
        CU_MEM_HANDLE_TYPE_GENERIC = 0,
    }

    /// What a texture answers beyond its edge.
    enum CUaddress_mode = u32 {
        CU_TR_ADDRESS_MODE_WRAP = 0,
        CU_TR_ADDRESS_MODE_CLAMP = 1,
        CU_TR_ADDRESS_MODE_MIRROR = 2,
        CU_TR_ADDRESS_MODE_BORDER = 3,
    }

    /// How a texture answers between its elements.
    enum CUfilter_mode = u32 {
        CU_TR_FILTER_MODE_POINT = 0,
        CU_TR_FILTER_MODE_LINEAR = 1,
    }
}

structures! {
    /// An array of one or two dimensions.
    struct CUDA_ARRAY_DESCRIPTOR {
        Width: usize,
        Height: usize,
        Format: CUarray_format,
        NumChannels: u32,
    }

    /// An array of one or two dimensions, of the old calls.
    struct CUDA_ARRAY_DESCRIPTOR_v1 {
        Width: u32,
        Height: u32,
        Format: CUarray_format,
        NumChannels: u32,
    }

    /// An array of up to three dimensions. Sides in elements; 0 where the array has no such side.
    #[derive(PartialEq, Eq)]
    struct CUDA_ARRAY3D_DESCRIPTOR {
        Width: usize,
        Height: usize,
        Depth: usize,
        Format: CUarray_format,
        NumChannels: u32,
        Flags: u32,
    }

    /// An array of up to three dimensions, of the old calls.
    struct CUDA_ARRAY3D_DESCRIPTOR_v1 {
        Width: u32,
        Height: u32,
        Depth: u32,
        Format: CUarray_format,
        NumChannels: u32,
        Flags: u32,
    }

    /// What memory an array needs that is made without any. Bytes.
    #[derive(Default)]
    struct CUDA_ARRAY_MEMORY_REQUIREMENTS {
        size: usize,
        alignment: usize,
        reserved: [u32; 4],
    }

    /// How a sparse array is divided. The sides of a tile in elements.
    struct CUDA_ARRAY_SPARSE_PROPERTIES {
        tileWidth: u32 = "tileExtent.width",
        tileHeight: u32 = "tileExtent.height",
        tileDepth: u32 = "tileExtent.depth",
        miptailFirstLevel: u32,
        /// Bytes.
        miptailSize: u64,
        flags: u32,
        reserved: [u32; 4],
    }

    /// A part of a sparse array, and the memory that is mapped there.
    struct CUarrayMapInfo {
        resourceType: CUresourcetype,
        /// The array, or the mipmapped one.
        resource: u64,
        subresourceType: CUarraySparseSubresourceType,
        /// A box of a level, or the tail of small levels.
        subresource: [u64; 4],
        memOperationType: CUmemOperationType,
        memHandleType: CUmemHandleType,
        memHandle: u64 = "memHandle.memHandle",
        /// Bytes.
        offset: u64,
        deviceBitMask: u32,
        flags: u32,
        reserved: [u32; 2],
    }

    /// What a texture or surface looks at: an array, or linear memory.
    struct CUDA_RESOURCE_DESC {
        resType: CUresourcetype,
        /// [`CUDA_RESOURCE_DESC_linear`] or [`CUDA_RESOURCE_DESC_pitch2D`], or an array's handle in the first word.
        res: [u64; 16],
        flags: u32,
    }

    /// Linear memory in [`CUDA_RESOURCE_DESC`].
    struct CUDA_RESOURCE_DESC_linear = "CUDA_RESOURCE_DESC" at "res.linear" {
        devPtr: u64,
        format: CUarray_format,
        numChannels: u32,
        /// Bytes.
        sizeInBytes: usize,
    }

    /// Memory in rows in [`CUDA_RESOURCE_DESC`].
    struct CUDA_RESOURCE_DESC_pitch2D = "CUDA_RESOURCE_DESC" at "res.pitch2D" {
        devPtr: u64,
        format: CUarray_format,
        numChannels: u32,
        /// Elements.
        width: usize,
        /// Rows.
        height: usize,
        /// Bytes from row to row.
        pitchInBytes: usize,
    }

    /// How a texture looks at it.
    struct CUDA_TEXTURE_DESC {
        addressMode: [CUaddress_mode; 3],
        filterMode: CUfilter_mode,
        flags: u32,
        maxAnisotropy: u32,
        mipmapFilterMode: CUfilter_mode,
        mipmapLevelBias: f32,
        minMipmapLevelClamp: f32,
        maxMipmapLevelClamp: f32,
        borderColor: [f32; 4],
        reserved: [i32; 12],
    }

    /// Which part of it a texture looks at, and as what.
    struct CUDA_RESOURCE_VIEW_DESC {
        /// `CUresourceViewFormat`.
        format: u32,
        width: usize,
        height: usize,
        depth: usize,
        firstMipmapLevel: u32,
        lastMipmapLevel: u32,
        firstLayer: u32,
        lastLayer: u32,
        reserved: [u32; 16],
    }

    /// A mipmapped array in external memory.
    struct CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC {
        /// Bytes.
        offset: u64,
        arrayDesc: CUDA_ARRAY3D_DESCRIPTOR,
        numLevels: u32,
        reserved: [u32; 16],
    }

    /// A copy of rows. Pitches and widths in bytes, heights in rows.
    struct CUDA_MEMCPY2D {
        srcXInBytes: usize,
        srcY: usize,
        srcMemoryType: CUmemorytype,
        srcHost: u64,
        srcDevice: u64,
        srcArray: u64,
        srcPitch: usize,
        dstXInBytes: usize,
        dstY: usize,
        dstMemoryType: CUmemorytype,
        dstHost: u64,
        dstDevice: u64,
        dstArray: u64,
        dstPitch: usize,
        WidthInBytes: usize,
        Height: usize,
    }

    /// A copy of a box. Pitches and widths in bytes, heights in rows, depths in slices.
    struct CUDA_MEMCPY3D {
        srcXInBytes: usize,
        srcY: usize,
        srcZ: usize,
        srcLOD: usize,
        srcMemoryType: CUmemorytype,
        srcHost: u64,
        srcDevice: u64,
        srcArray: u64,
        reserved0: u64,
        srcPitch: usize,
        srcHeight: usize,
        dstXInBytes: usize,
        dstY: usize,
        dstZ: usize,
        dstLOD: usize,
        dstMemoryType: CUmemorytype,
        dstHost: u64,
        dstDevice: u64,
        dstArray: u64,
        reserved1: u64,
        dstPitch: usize,
        dstHeight: usize,
        WidthInBytes: usize,
        Height: usize,
        Depth: usize,
    }

    /// A copy of a box between contexts; as [`CUDA_MEMCPY3D`].
    struct CUDA_MEMCPY3D_PEER {
        srcXInBytes: usize,
        srcY: usize,
        srcZ: usize,
        srcLOD: usize,
        srcMemoryType: CUmemorytype,
        srcHost: u64,
        srcDevice: u64,
        srcArray: u64,
        srcContext: u64,
        srcPitch: usize,
        srcHeight: usize,
        dstXInBytes: usize,
        dstY: usize,
        dstZ: usize,
        dstLOD: usize,
        dstMemoryType: CUmemorytype,
        dstHost: u64,
        dstDevice: u64,
        dstArray: u64,
        dstContext: u64,
        dstPitch: usize,
        dstHeight: usize,
        WidthInBytes: usize,
        Height: usize,
        Depth: usize,
    }
}

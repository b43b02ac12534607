//! Arrays: what they take, what may be asked of them, bytes in and out.

use crate::{
    api::{
        Handle, INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE, OUT_OF_MEMORY, SUCCESS, cu, get, memory_info,
        read, start,
    },
    calls::{Array3, Properties},
    runner::Scenario,
};

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "an_array_takes_memory_of_the_card_and_gives_it_back", env: SMALL, run: takes },
    Scenario { name: "bytes_go_into_arrays_and_come_out_again", env: &[], run: bytes },
    Scenario { name: "the_levels_of_a_mipmapped_array_share_its_memory", env: &[], run: mipmapped },
    Scenario { name: "sparse_and_deferred_arrays_take_no_memory_of_their_own", env: &[], run: sparse },
    Scenario { name: "textures_and_surfaces_look_at_what_there_is", env: &[], run: objects },
];

const SMALL: &[(&str, &str)] = &[("SIMGPU_CARDS", "Sim-4GB")];
const FLOAT: u32 = 0x20;
const BYTE: u32 = 0x01;
const SPARSE: u32 = 0x40;
const DEFERRED: u32 = 0x80;

const fn flat(width: usize, height: usize, format: u32) -> Array3 {
    Array3 { width, height, depth: 0, format, channels: 1, flags: 0 }
}

fn make(description: Array3) -> i32 {
    let mut array = 0;
    cu!(cuArray3DCreate_v2(&raw mut array, &raw const description))
}

fn takes() {
    let mut array = 0;
    let plain = flat(1000, 100, FLOAT);
    assert_eq!(cu!(cuArray3DCreate_v2(&raw mut array, &raw const plain)), 3);
    let context = start();
    let (free, _) = memory_info();
    let first: Handle = get!(cuArray3DCreate_v2(&raw const plain));
    let taken = free - memory_info().0;
    assert!((400_000..600_000).contains(&taken) && taken.is_multiple_of(65536), "{taken}");
    assert_eq!(get!(cuArray3DGetDescriptor_v2(first)) as Array3, plain);
    let short: [u64; 3] = get!(cuArrayGetDescriptor_v2(first));
    assert_eq!(short, [1000, 100, u64::from(FLOAT) | 1 << 32]);
    // What would pass the end of the card is refused; sides that no array has are no arrays.
    assert_eq!(make(flat(131_072, 65_536, FLOAT)), OUT_OF_MEMORY);
    for wrong in [
        flat(0, 1, FLOAT),
        flat(131_073, 1, FLOAT),
        flat(usize::MAX, usize::MAX, FLOAT),
        flat(1, 1, 0x77),
        Array3 { channels: 3, ..plain },
        Array3 { flags: 1 << 20, ..plain },
        Array3 { height: 0, depth: 4, ..plain },
        // A cube has six square sides.
        Array3 { depth: 6, flags: 4, ..plain },
    ] {
        assert_eq!(make(wrong), INVALID_VALUE, "{wrong:?}");
    }
    assert_eq!(cu!(cuArray3DCreate_v2(std::ptr::null_mut(), &raw const plain)), INVALID_VALUE);
    assert_eq!(cu!(cuArray3DCreate_v2(&raw mut array, std::ptr::null())), INVALID_VALUE);
    assert_eq!(cu!(cuArrayDestroy(first)), SUCCESS);
    assert_eq!(cu!(cuArrayDestroy(first)), INVALID_HANDLE);
    assert_eq!(memory_info().0, free);
    // Those that are left go with their context.
    let cube: Handle =
        get!(cuArray3DCreate_v2(&Array3 { width: 64, height: 64, depth: 6, flags: 4, ..plain }));
    assert_eq!(cu!(cuCtxDestroy_v2(context)), SUCCESS);
    assert_eq!(cu!(cuArrayDestroy(cube)), INVALID_HANDLE);
    assert_eq!(make(plain), INVALID_CONTEXT);
}

fn bytes() {
    let _context = start();
    let array: Handle = get!(cuArray3DCreate_v2(&flat(10, 4, BYTE)));
    let data: Vec<u8> = (0..40).collect();
    assert_eq!(cu!(cuMemcpyHtoA_v2(array, 0, data.as_ptr().cast(), 40)), SUCCESS);
    let mut back = [0_u8; 40];
    assert_eq!(cu!(cuMemcpyAtoH_v2(back.as_mut_ptr().cast(), array, 5, 20)), SUCCESS);
    assert_eq!(back[..20], data[5..25]);
    assert_eq!(cu!(cuMemcpyAtoH_v2(back.as_mut_ptr().cast(), array, 30, 11)), INVALID_VALUE);
    assert_eq!(cu!(cuMemcpyHtoA_v2(array, usize::MAX, data.as_ptr().cast(), 2)), INVALID_VALUE);
    let pointer: u64 = get!(cuMemAlloc_v2(40));
    assert_eq!(cu!(cuMemcpyAtoD_v2(pointer, array, 0, 40)), SUCCESS);
    assert_eq!(read(pointer, 40), data);
    // The middle of the array into a rectangle of the host: x, y, type, host, device, array, pitch.
    let mut part = [0_u8; 6];
    let host = part.as_mut_ptr() as u64;
    let out = [4, 1, 3, 0, 0, array, 0, 0, 0, 1, host, 0, 0, 3, 3, 2];
    assert_eq!(cu!(cuMemcpy2D_v2(&raw const out)), SUCCESS);
    assert_eq!(part, [14, 15, 16, 24, 25, 26]);
    let past_the_row = [8, 1, 3, 0, 0, array, 0, 0, 0, 1, host, 0, 0, 3, 3, 2];
    assert_eq!(cu!(cuMemcpy2D_v2(&raw const past_the_row)), INVALID_VALUE);
    // A box of a solid: x, y, z, level, type, host, device, array, reserved, pitch, height of both sides, extent.
    let solid = Array3 { width: 4, height: 4, depth: 4, ..flat(0, 0, BYTE) };
    let solid: Handle = get!(cuArray3DCreate_v2(&raw const solid));
    let all: Vec<u8> = (0..64).collect();
    assert_eq!(cu!(cuMemcpyHtoA_v2(solid, 0, all.as_ptr().cast(), 64)), SUCCESS);
    let mut corner = [0_u8; 8];
    let host = corner.as_mut_ptr() as u64;
    let mut out = [2, 2, 2, 0, 3, 0, 0, solid, 0, 0, 0, 0, 0, 0, 0, 1, host, 0, 0, 0, 2, 2, 2, 2, 2];
    assert_eq!(cu!(cuMemcpy3D_v2(&raw const out)), SUCCESS);
    assert_eq!(corner, [42, 43, 46, 47, 58, 59, 62, 63]);
    out[2] = 3;
    assert_eq!(cu!(cuMemcpy3D_v2(&raw const out)), INVALID_VALUE);
    out[7] = 12345;
    assert_eq!(cu!(cuMemcpy3D_v2(&raw const out)), INVALID_HANDLE);
    assert_eq!(cu!(cuMemcpy3D_v2(std::ptr::null())), INVALID_VALUE);
}

fn mipmapped() {
    let _context = start();
    let (free, _) = memory_info();
    let whole = Array3 { width: 256, height: 256, ..flat(0, 0, FLOAT) };
    let array: Handle = get!(cuMipmappedArrayCreate(&raw const whole, 99));
    assert!(free - memory_info().0 > 256 * 256 * 4);
    let levels: Vec<Handle> = (0..9).map(|number| get!(cuMipmappedArrayGetLevel(array, number))).collect();
    let mut none = 0;
    assert_eq!(cu!(cuMipmappedArrayGetLevel(&raw mut none, array, 9)), INVALID_VALUE);
    let sides: Vec<usize> =
        levels.iter().map(|&level| (get!(cuArray3DGetDescriptor_v2(level)) as Array3).width).collect();
    assert_eq!(sides, [256, 128, 64, 32, 16, 8, 4, 2, 1]);
    for (level, value) in levels.iter().zip(0_u32..) {
        assert_eq!(cu!(cuMemcpyHtoA_v2(*level, 0, (&raw const value).cast(), 4)), SUCCESS);
    }
    for (level, expected) in levels.iter().zip(0_u32..) {
        let mut value = 99_u32;
        assert_eq!(cu!(cuMemcpyAtoH_v2((&raw mut value).cast(), *level, 0, 4)), SUCCESS);
        assert_eq!(value, expected);
    }
    assert_eq!(cu!(cuArrayDestroy(levels[0])), INVALID_HANDLE);
    assert_eq!(cu!(cuMipmappedArrayDestroy(array)), SUCCESS);
    assert_eq!(cu!(cuMipmappedArrayDestroy(array)), INVALID_HANDLE);
    assert_eq!((cu!(cuArrayDestroy(levels[1])), memory_info().0), (INVALID_HANDLE, free));
}

fn sparse() {
    let _context = start();
    let (free, _) = memory_info();
    let plain = flat(4096, 4096, FLOAT);
    let deferred: Handle = get!(cuArray3DCreate_v2(&Array3 { flags: DEFERRED, ..plain }));
    let sparse: Handle = get!(cuArray3DCreate_v2(&Array3 { flags: SPARSE, ..plain }));
    let levels: Handle = get!(cuMipmappedArrayCreate(&Array3 { flags: DEFERRED, ..plain }, 3));
    assert_eq!(memory_info().0, free);
    let needs: [u64; 4] = get!(cuArrayGetMemoryRequirements(deferred, 0));
    assert_eq!((needs[0], needs[1]), (64 << 20, 65536));
    let needs: [u64; 4] = get!(cuMipmappedArrayGetMemoryRequirements(levels, 0));
    assert_eq!(needs[0], (64 + 16 + 4) << 20);
    let tiles: [u64; 6] = get!(cuArrayGetSparseProperties(sparse));
    assert_eq!(tiles[0], 128 | 128 << 32);
    let mut out = [0; 6];
    assert_eq!(cu!(cuArrayGetSparseProperties(&raw mut out, deferred)), INVALID_VALUE);
    let ordinary: Handle = get!(cuArray3DCreate_v2(&flat(4, 4, FLOAT)));
    let mut out = [0; 4];
    assert_eq!(cu!(cuArrayGetMemoryRequirements(&raw mut out, ordinary, 0)), INVALID_VALUE);
    // Physical memory that is mapped into a sparse array lives until it is unmapped, or the array goes.
    let (free, _) = memory_info();
    let properties = Properties { allocation: 1, location: 1, ..Properties::default() };
    let memory: Handle = get!(cuMemCreate(2 << 20, &raw const properties, 0));
    // Array, its handle, a box of a level, its 32 bytes, map, the memory, offset, devices.
    let mut info = [0, sparse, 0, 0, 0, 128 << 32, 128, 1, memory, 0, 1, 0];
    assert_eq!(cu!(cuMemMapArrayAsync(&raw const info, 1, 0)), SUCCESS);
    assert_eq!(cu!(cuMemRelease(memory)), SUCCESS);
    assert_eq!(memory_info().0, free - (2 << 20));
    assert_eq!(cu!(cuMemMapArrayAsync(&raw const info, 1, 0)), INVALID_VALUE, "the handle is gone");
    (info[7], info[8]) = (2, 0);
    assert_eq!(cu!(cuMemMapArrayAsync(&raw const info, 1, 0)), SUCCESS);
    assert_eq!(memory_info().0, free);
    info[1] = ordinary;
    assert_eq!(cu!(cuMemMapArrayAsync(&raw const info, 1, 0)), INVALID_VALUE);
    let memory: Handle = get!(cuMemCreate(2 << 20, &raw const properties, 0));
    (info[1], info[7], info[8]) = (sparse, 1, memory);
    assert_eq!(cu!(cuMemMapArrayAsync(&raw const info, 1, 0)), SUCCESS);
    assert_eq!((cu!(cuMemRelease(memory)), cu!(cuArrayDestroy(sparse))), (SUCCESS, SUCCESS));
    assert_eq!(memory_info().0, free);
}

fn objects() {
    let _context = start();
    let array: Handle = get!(cuArray3DCreate_v2(&flat(4, 4, FLOAT)));
    let pointer: u64 = get!(cuMemAlloc_v2(4096));
    let sampling = [0; 26];
    let mut resource = [0; 18];
    resource[1] = array;
    let texture: Handle = get!(cuTexObjectCreate(&raw const resource, &raw const sampling, std::ptr::null()));
    assert_eq!(get!(cuTexObjectGetResourceDesc(texture)) as [u64; 18], resource);
    let surface: Handle = get!(cuSurfObjectCreate(&raw const resource));
    assert_eq!(cu!(cuSurfObjectDestroy(texture)), INVALID_HANDLE);
    assert_eq!((cu!(cuSurfObjectDestroy(surface)), cu!(cuTexObjectDestroy(texture))), (SUCCESS, SUCCESS));
    // Linear memory: pointer, format and channels, bytes.
    let texture = |length: u64| {
        let mut resource = [0; 18];
        (resource[0], resource[1], resource[2], resource[3]) =
            (2, pointer, u64::from(FLOAT) | 1 << 32, length);
        let mut object = 0;
        cu!(cuTexObjectCreate(&raw mut object, &raw const resource, &raw const sampling, std::ptr::null()))
    };
    assert_eq!([texture(4096), texture(4097), texture(u64::MAX)], [SUCCESS, INVALID_VALUE, INVALID_VALUE]);
    resource[0] = 9;
    let mut object = 0;
    assert_eq!(cu!(cuSurfObjectCreate(&raw mut object, &raw const resource)), INVALID_VALUE);
}

//! Green contexts: contexts that are given a part of a card's multiprocessors. Nothing is computed, so the part is
//! only remembered; such a context takes memory as any other does.

use crate::{
    calls::entry::{entry, put, read},
    device::initialised::initialised,
    error::{CuError, CuResult},
    handles::{Handle, Registry, fresh},
    objects::{
        context::{CONTEXTS, Context, context},
        context_teardown, event,
        stream::{self, STREAMS, TargetStream},
    },
};

/// `CU_DEV_RESOURCE_TYPE_SM`.
const MULTIPROCESSORS: u32 = 1;
/// `CU_GREEN_CTX_DEFAULT_STREAM`, which has to be asked for.
const DEFAULT_STREAM: u32 = 1;
/// `CU_STREAM_NON_BLOCKING`, which has to be asked for.
const NON_BLOCKING: u32 = 1;

/// `CUdevResource`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Resource {
    kind: u32,
    inner: [u32; 23],
    /// Multiprocessors, the fewest of a part, and of what a part is a multiple.
    count: u32,
    least: u32,
    step: u32,
    rest: [u32; 7],
    next: u64,
}

/// A green context.
#[derive(Debug)]
struct Green {
    context: Handle,
    resource: Resource,
}

static DESCRIPTIONS: Registry<Resource> = Registry::new();
static GREENS: Registry<Green> = Registry::new();

impl Resource {
    /// `count` multiprocessors of a card of this compute capability.
    const fn of(count: u32, compute: (u32, u32)) -> Self {
        let (least, step) = if compute.0 >= 9 { (8, 8) } else { (4, 2) };
        Self { kind: MULTIPROCESSORS, inner: [0; 23], count, least, step, rest: [0; 7], next: 0 }
    }

    const fn with(self, count: u32) -> Self {
        Self { count, ..self }
    }
}

fn whole(device: i32, kind: u32) -> CuResult<Resource> {
    let model = initialised()?.card(device)?.model();
    match kind {
        MULTIPROCESSORS => Ok(Resource::of(model.multiprocessors, model.compute)),
        _ => Err(CuError::INVALID_RESOURCE_TYPE),
    }
}

/// Splits multiprocessors into groups of at least `least`: as many as are wanted and there are.
unsafe fn split(
    out: *mut Resource,
    groups: *mut u32,
    input: *const Resource,
    remaining: *mut Resource,
    least: u32,
) -> CuResult {
    // SAFETY: the driver API's contract: room for as many groups as are wanted.
    unsafe {
        let (input, wanted) = (read(input)?, read(groups)?);
        if input.kind != MULTIPROCESSORS {
            return Err(CuError::INVALID_RESOURCE_TYPE);
        }
        let each = least.max(input.least).checked_next_multiple_of(input.step.max(1));
        let each = each.filter(|&each| each <= input.count).ok_or(CuError::INVALID_RESOURCE_CONFIGURATION)?;
        let possible = input.count / each;
        let made = if out.is_null() { possible } else { wanted.min(possible) };
        for place in 0..if out.is_null() { 0 } else { made } {
            put(out.add(place as usize), input.with(each))?;
        }
        if !remaining.is_null() {
            let left = if out.is_null() { 0 } else { input.count - made * each };
            put(remaining, if left == 0 { Resource { kind: 0, ..input.with(0) } } else { input.with(left) })?;
        }
        put(groups, made)
    }
}

fn green(handle: Handle) -> CuResult<std::sync::Arc<Green>> {
    GREENS.find(handle).ok_or(CuError::INVALID_CONTEXT)
}

/// The default stream of a green context.
fn default_stream(handle: Handle) -> CuResult<TargetStream> {
    Ok(TargetStream::Default(context(green(handle)?.context)?, false))
}

fn resource_of(found: Option<Resource>, kind: u32) -> CuResult<Resource> {
    found.filter(|_| kind == MULTIPROCESSORS).ok_or(CuError::INVALID_RESOURCE_TYPE)
}

entry! {
    cuDeviceGetDevResource(device: i32, out: *mut Resource, kind: u32) { put(out, whole(device, kind)?) }
    cuCtxGetDevResource(handle: Handle, out: *mut Resource, kind: u32) {
        let context = context(handle)?;
        let mut own = None;
        GREENS.each(|green| {
            if green.context == handle {
                own = Some(green.resource);
            }
        });
        put(out, match own {
            Some(own) => resource_of(Some(own), kind)?,
            None => whole(context.device, kind)?,
        })
    }
    cuGreenCtxGetDevResource(handle: Handle, out: *mut Resource, kind: u32) {
        put(out, resource_of(Some(green(handle)?.resource), kind)?)
    }
    cuDevSmResourceSplitByCount(
        out: *mut Resource,
        groups: *mut u32,
        input: *const Resource,
        remaining: *mut Resource,
        flags: u32,
        least: u32,
    ) {
        if flags > 3 {
            return Err(CuError::INVALID_VALUE);
        }
        split(out, groups, input, remaining, least)
    }
    cuDevResourceGenerateDesc(out: *mut Handle, list: *const Resource, count: u32) {
        if out.is_null() || count == 0 {
            return Err(CuError::INVALID_VALUE);
        }
        let mut all = read(list)?;
        for place in 0..count as usize {
            let one = read(list.wrapping_add(place))?;
            if one.kind != MULTIPROCESSORS || one.count == 0 {
                return Err(CuError::INVALID_RESOURCE_TYPE);
            }
            all.count = if place == 0 { one.count } else { all.count.saturating_add(one.count) };
        }
        put(out, DESCRIPTIONS.add(all))
    }
    cuGreenCtxCreate(out: *mut Handle, description: Handle, device: i32, flags: u32) {
        if out.is_null() || flags != DEFAULT_STREAM {
            return Err(CuError::INVALID_VALUE);
        }
        let resource = *DESCRIPTIONS.find(description).ok_or(CuError::INVALID_VALUE)?;
        if resource.count > whole(device, MULTIPROCESSORS)?.count {
            return Err(CuError::INVALID_RESOURCE_CONFIGURATION);
        }
        let context = Context::create(fresh(), device, 0, 3020, false)?.handle;
        put(out, GREENS.add(Green { context, resource }))
    }
    cuGreenCtxDestroy(handle: Handle) {
        let green = GREENS.remove(handle).map_err(|_| CuError::INVALID_CONTEXT)?;
        context_teardown::destroy(green.context)
    }
    cuCtxFromGreenCtx(out: *mut Handle, handle: Handle) { put(out, green(handle)?.context) }
    cuGreenCtxGetId(handle: Handle, id: *mut u64) { put(id, context(green(handle)?.context)?.id) }
    cuGreenCtxRecordEvent(handle: Handle, event: Handle) { event::record(event, &default_stream(handle)?, 0) }
    cuGreenCtxWaitEvent(handle: Handle, event: Handle) { event::wait_in(&default_stream(handle)?, event, 0) }
    cuGreenCtxStreamCreate(out: *mut Handle, handle: Handle, flags: u32, priority: i32) {
        if out.is_null() || flags != NON_BLOCKING {
            return Err(CuError::INVALID_VALUE);
        }
        let context = context(green(handle)?.context)?;
        put(out, stream::create_in(&context, flags, priority)?)
    }
    cuStreamGetGreenCtx(stream: Handle, out: *mut Handle) {
        let owner = STREAMS.get(stream)?.context;
        CONTEXTS.find(owner).ok_or(CuError::CONTEXT_IS_DESTROYED)?;
        put(out, GREENS.handle_of(|green| green.context == owner).unwrap_or(0))
    }
}

const _: () = assert!(size_of::<Resource>() == 144);

//! The driver's calls about green contexts and what they are made of.

use gpupool_nvidia::cuda::{
    CU_DEV_RESOURCE_TYPE_INVALID, CU_DEV_RESOURCE_TYPE_SM, CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING,
    CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE, CU_GREEN_CTX_DEFAULT_STREAM, CU_STREAM_NON_BLOCKING,
    CUdevResource, CUdevResourceType,
};

use crate::{
    calls::{
        context::SECOND_API,
        entry::{entry, put, read, read_list},
    },
    device::initialised::initialised,
    error::{CuError, CuResult},
    handles::{Handle, fresh},
    objects::{
        context::{CONTEXTS, Context, context},
        context_teardown, event,
        green_context::{DESCRIPTIONS, GREENS, GreenContext, Multiprocessors, default_stream, green},
        stream::{self, STREAMS},
    },
};

impl From<Multiprocessors> for CUdevResource {
    fn from(multiprocessors: Multiprocessors) -> Self {
        let Multiprocessors { count, least, step } = multiprocessors;
        Self {
            r#type: CU_DEV_RESOURCE_TYPE_SM,
            internal_padding: [0; 92],
            smCount: count,
            minSmPartitionSize: least,
            smCoscheduledAlignment: step,
            flags: 0,
            localityDomainId: 0,
            unused: [0; 5],
            nextResource: std::ptr::null_mut(),
        }
    }
}

/// The multiprocessors in a resource. Fails where it is of another type.
fn multiprocessors(resource: &CUdevResource) -> CuResult<Multiprocessors> {
    if resource.r#type != CU_DEV_RESOURCE_TYPE_SM {
        return Err(CuError::INVALID_RESOURCE_TYPE);
    }
    let (least, step) = (resource.minSmPartitionSize, resource.smCoscheduledAlignment);
    Ok(Multiprocessors { count: resource.smCount, least, step })
}

/// All multiprocessors of a device.
fn whole(device: i32, kind: CUdevResourceType) -> CuResult<Multiprocessors> {
    let model = initialised()?.card(device)?.model();
    match kind {
        CU_DEV_RESOURCE_TYPE_SM => Ok(Multiprocessors::of(model.multiprocessors, model.compute)),
        _ => Err(CuError::INVALID_RESOURCE_TYPE),
    }
}

/// Splits multiprocessors into groups of at least `least`: as many as are wanted and there are.
///
/// # Safety
/// `input` is null or valid for a read, `groups` for a read and a write, `remaining` for a write; `out` is
/// null or valid for writes of `*groups` resources. None need be aligned.
unsafe fn split(
    out: *mut CUdevResource,
    groups: *mut u32,
    input: *const CUdevResource,
    remaining: *mut CUdevResource,
    least: u32,
) -> CuResult {
    // SAFETY: by this function's contract: room for as many groups as are wanted.
    unsafe {
        let (resource, wanted) = (read(input)?, read(groups)?);
        let input = multiprocessors(&resource)?;
        let each = least.max(input.least).checked_next_multiple_of(input.step.max(1));
        let each = each.filter(|&each| each <= input.count).ok_or(CuError::INVALID_RESOURCE_CONFIGURATION)?;
        let possible = input.count / each;
        let made = if out.is_null() { possible } else { wanted.min(possible) };
        for place in 0..if out.is_null() { 0 } else { made } {
            put(out.add(place as usize), input.with(each).into())?;
        }
        if !remaining.is_null() {
            let left = if out.is_null() { 0 } else { input.count - made * each };
            let rest = CUdevResource::from(input.with(left));
            let r#type = if left == 0 { CU_DEV_RESOURCE_TYPE_INVALID } else { CU_DEV_RESOURCE_TYPE_SM };
            put(remaining, CUdevResource { r#type, ..rest })?;
        }
        put(groups, made)
    }
}

/// Every flag of `cuDevSmResourceSplitByCount`.
const SPLIT_FLAGS: u32 =
    CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING | CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE;

/// The resource of that type that a context was given.
fn resource_of(given: Multiprocessors, kind: CUdevResourceType) -> CuResult<CUdevResource> {
    if kind == CU_DEV_RESOURCE_TYPE_SM { Ok(given.into()) } else { Err(CuError::INVALID_RESOURCE_TYPE) }
}

entry! {
    cuDeviceGetDevResource(device: i32, out: *mut CUdevResource, kind: CUdevResourceType) {
        put(out, whole(device, kind)?.into())
    }
    cuCtxGetDevResource(handle: Handle, out: *mut CUdevResource, kind: CUdevResourceType) {
        let context = context(handle)?;
        let mut own = None;
        GREENS.each(|green| {
            if green.context == handle {
                own = Some(green.multiprocessors);
            }
        });
        put(out, match own {
            Some(own) => resource_of(own, kind)?,
            None => whole(context.device, kind)?.into(),
        })
    }
    cuGreenCtxGetDevResource(handle: Handle, out: *mut CUdevResource, kind: CUdevResourceType) {
        put(out, resource_of(green(handle)?.multiprocessors, kind)?)
    }
    cuDevSmResourceSplitByCount(
        out: *mut CUdevResource,
        groups: *mut u32,
        input: *const CUdevResource,
        remaining: *mut CUdevResource,
        flags: u32,
        least: u32,
    ) {
        if flags & !SPLIT_FLAGS != 0 {
            return Err(CuError::INVALID_VALUE);
        }
        split(out, groups, input, remaining, least)
    }
    cuDevResourceGenerateDesc(out: *mut Handle, list: *const CUdevResource, count: u32) {
        if out.is_null() || count == 0 {
            return Err(CuError::INVALID_VALUE);
        }
        let mut all: Option<Multiprocessors> = None;
        for resource in read_list(list, count as usize)? {
            let one = multiprocessors(&resource)?;
            if one.count == 0 {
                return Err(CuError::INVALID_RESOURCE_TYPE);
            }
            all = Some(all.map_or(one, |all| all.with(all.count.saturating_add(one.count))));
        }
        put(out, DESCRIPTIONS.add(all.ok_or(CuError::INVALID_VALUE)?))
    }
    cuGreenCtxCreate(out: *mut Handle, description: Handle, device: i32, flags: u32) {
        if out.is_null() || flags != CU_GREEN_CTX_DEFAULT_STREAM {
            return Err(CuError::INVALID_VALUE);
        }
        let multiprocessors = *DESCRIPTIONS.find(description).ok_or(CuError::INVALID_VALUE)?;
        if multiprocessors.count > whole(device, CU_DEV_RESOURCE_TYPE_SM)?.count {
            return Err(CuError::INVALID_RESOURCE_CONFIGURATION);
        }
        let context = Context::create(fresh(), device, 0, SECOND_API, false)?.handle;
        put(out, GREENS.add(GreenContext { context, multiprocessors }))
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
        if out.is_null() || flags != CU_STREAM_NON_BLOCKING {
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

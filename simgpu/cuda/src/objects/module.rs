//! Loaded code: modules of a context, libraries of the process, and the functions in them.

use std::{
    collections::BTreeMap,
    ffi::{CStr, c_void},
    sync::{
        Arc, Mutex,
        atomic::{AtomicI32, AtomicU64, Ordering::Relaxed},
    },
};

use gpupool_nvidia::cuda::{
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, CU_FUNC_ATTRIBUTE_BINARY_VERSION,
    CU_FUNC_ATTRIBUTE_CACHE_MODE_CA, CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET,
    CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES,
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
    CU_FUNC_ATTRIBUTE_NUM_REGS, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
    CU_FUNC_ATTRIBUTE_PTX_VERSION, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH,
    CU_FUNC_ATTRIBUTE_SHARED_MEMORY_MODE, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, CU_SHAREDMEM_CARVEOUT_DEFAULT,
    CU_SHAREDMEM_CARVEOUT_MAX_SHARED, CUfunction_attribute,
};

use crate::{
    device::{attributes::attribute, initialised::initialised},
    error::{CuError, CuResult},
    handles::{Handle, Registry},
    image::{Image, Kernel, Variable},
    memory::space::{self, AllocationKind, CopyPointer, MemoryCopy, MemoryFill},
    objects::context::{Context, current},
    sync::lock,
};

/// Shared memory that every block may ask for without further ado, in bytes.
pub(crate) const DEFAULT_SHARED: u32 = 48 << 10;
/// Code takes memory of the card in multiples of this many bytes.
const CODE_STEP: u64 = 64 << 10;

/// Code loaded into a context.
#[derive(Debug)]
pub(crate) struct Module {
    /// The context it belongs to.
    pub(crate) context: Handle,
    image: Arc<Image>,
    /// Where its code is.
    code: u64,
    /// Address of each variable of the image, in the same order.
    variables: Vec<u64>,
    /// Functions that were asked for, by their place in the image.
    functions: Mutex<BTreeMap<usize, Handle>>,
}

/// Code loaded for all contexts; each gets a module of its own when it first needs one.
#[derive(Debug)]
pub(crate) struct Library {
    image: Arc<Image>,
    kernels: Mutex<BTreeMap<usize, Handle>>,
    /// Context → module.
    modules: Mutex<BTreeMap<Handle, Handle>>,
}

/// A `CUfunction`, or a `CUkernel`: launches take both.
#[derive(Debug)]
pub(crate) struct Function {
    image: Arc<Image>,
    /// Its place in the image.
    pub(crate) place: usize,
    /// Context of a function; 0 for a kernel, which belongs to none.
    pub(crate) context: Handle,
    /// Module of a function, library of a kernel.
    pub(crate) parent: Handle,
    /// Dynamic shared memory that launches may ask for, in bytes.
    pub(crate) max_dynamic_shared: AtomicI32,
    pub(crate) carveout: AtomicI32,
    /// Id of the context that a kernel was last loaded into.
    loaded_in: AtomicU64,
    /// What the oldest way of launching needs, set before the launch itself.
    pub(crate) old: Mutex<OldLaunch>,
}

/// Block and dynamic shared memory of a launch by `cuLaunch`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OldLaunch {
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
}

pub(crate) static MODULES: Registry<Module> = Registry::new();
pub(crate) static LIBRARIES: Registry<Library> = Registry::new();
static FUNCTIONS: Registry<Function> = Registry::new();

/// The architecture that code is chosen for: the current context's card, or the first one where there is no context.
fn architecture() -> CuResult<u32> {
    let card = current().map(|context| context.card).or_else(|_| initialised()?.card(0))?;
    Ok(card.model().compute.0 * 10 + card.model().compute.1)
}

/// Reads the code at `start`.
///
/// # Safety
/// As for [`Image::at`].
pub(crate) unsafe fn image_at(start: *const c_void) -> CuResult<Image> {
    // SAFETY: the caller vouches for it.
    unsafe { Image::at(start, architecture()?) }
}

/// Reads the code in a file.
///
/// # Safety
/// `path` is null or a string.
pub(crate) unsafe fn image_in(path: *const std::ffi::c_char) -> CuResult<Image> {
    if path.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: not null, and the caller vouches for the rest.
    let path = unsafe { CStr::from_ptr(path) };
    let path = std::path::Path::new(path.to_str().map_err(|_| CuError::FILE_NOT_FOUND)?);
    Image::parse(&std::fs::read(path).map_err(|_| CuError::FILE_NOT_FOUND)?, architecture()?)
}

/// Loads code into the current context.
pub(crate) fn load(image: Image) -> CuResult<Handle> {
    load_into(&*current()?, Arc::new(image))
}

fn load_into(context: &Context, image: Arc<Image>) -> CuResult<Handle> {
    let size = image.length.max(1).next_multiple_of(CODE_STEP);
    let code = space::allocate(AllocationKind::Code, size, context.owner(), 0)?;
    let mut variables = Vec::new();
    for variable in &image.variables {
        match place(variable, context) {
            Ok(address) => variables.push(address),
            Err(error) => {
                release_memory(code, &variables);
                return Err(error);
            }
        }
    }
    let functions = Mutex::default();
    Ok(MODULES.add(Module { context: context.handle, image, code, variables, functions }))
}

/// Takes memory for a variable and gives it its first value.
fn place(variable: &Variable, context: &Context) -> CuResult<u64> {
    let size = variable.size.max(1);
    let address = space::allocate(AllocationKind::Variable, size, context.owner(), 0)?;
    MemoryFill { to: address, pattern: [0; 4], unit: 1, count: size, rows: 1, pitch: 0 }.run()?;
    let values = CopyPointer::Host(variable.initial.as_ptr() as u64);
    MemoryCopy::plain(CopyPointer::Device(address), values, variable.initial.len() as u64).run()?;
    Ok(address)
}

fn release_memory(code: u64, variables: &[u64]) {
    space::release(code, |found| found.kind == AllocationKind::Code);
    for &address in variables {
        space::release(address, |found| found.kind == AllocationKind::Variable);
    }
}

/// Ends a module: its functions and variables go with it.
pub(crate) fn unload(handle: Handle) -> CuResult {
    let module = MODULES.remove(handle)?;
    FUNCTIONS.remove_all(|function| function.parent == handle);
    release_memory(module.code, &module.variables);
    Ok(())
}

/// Ends what is left of a context's code.
pub(crate) fn end_of_context(context: Handle) {
    MODULES.remove_all(|module| module.context == context);
    FUNCTIONS.remove_all(|function| function.context == context);
    LIBRARIES.each(|library| {
        lock(&library.modules).remove(&context);
    });
}

/// Keeps code for all contexts.
pub(crate) fn load_library(image: Image) -> Handle {
    LIBRARIES.add(Library { image: Arc::new(image), kernels: Mutex::default(), modules: Mutex::default() })
}

/// Ends a library with its kernels, and its modules in all contexts.
pub(crate) fn unload_library(handle: Handle) -> CuResult {
    let library = LIBRARIES.remove(handle)?;
    FUNCTIONS.remove_all(|kernel| kernel.parent == handle);
    let modules = std::mem::take(&mut *lock(&library.modules));
    for module in modules.into_values() {
        let _ = unload(module);
    }
    Ok(())
}

/// The function or kernel behind a handle.
pub(crate) fn function(handle: Handle) -> CuResult<Arc<Function>> {
    FUNCTIONS.get(handle)
}

fn find(image: &Image, name: &CStr) -> CuResult<usize> {
    image.kernels.iter().position(|kernel| kernel.name.as_c_str() == name).ok_or(CuError::NOT_FOUND)
}

fn new_function(image: &Arc<Image>, place: usize, context: Handle, parent: Handle) -> Handle {
    FUNCTIONS.add(Function {
        image: Arc::clone(image),
        place,
        context,
        parent,
        max_dynamic_shared: AtomicI32::new(i32::try_from(DEFAULT_SHARED).unwrap_or_default()),
        carveout: AtomicI32::new(CU_SHAREDMEM_CARVEOUT_DEFAULT),
        loaded_in: AtomicU64::new(0),
        old: Mutex::new(OldLaunch { block: [1; 3], shared: 0 }),
    })
}

impl Function {
    /// What the code declares.
    pub(crate) fn kernel(&self) -> &Kernel {
        &self.image.kernels[self.place]
    }

    /// Loads a kernel's code into a context that has it not yet: it takes memory with its first launch there.
    pub(crate) fn load_in(&self, context: &Context) -> CuResult {
        if self.context == 0 && self.loaded_in.load(Relaxed) != context.id {
            LIBRARIES.get(self.parent)?.module_in(context)?;
            self.loaded_in.store(context.id, Relaxed);
        }
        Ok(())
    }

    /// The architecture it was made for, 10 × major + minor.
    pub(crate) fn architecture(&self) -> u32 {
        self.image.architecture
    }

    /// An attribute of the function; `CUDA_ERROR_INVALID_VALUE` where there is no such.
    pub(crate) fn attribute(&self, number: CUfunction_attribute) -> CuResult<i32> {
        let kernel = self.kernel();
        let value = match number {
            CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK => kernel.max_threads,
            CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES => kernel.shared,
            CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES => kernel.constant,
            CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES => kernel.local,
            CU_FUNC_ATTRIBUTE_NUM_REGS => kernel.registers,
            CU_FUNC_ATTRIBUTE_PTX_VERSION | CU_FUNC_ATTRIBUTE_BINARY_VERSION => self.architecture(),
            CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => {
                return Ok(self.max_dynamic_shared.load(Relaxed));
            }
            CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT => return Ok(self.carveout.load(Relaxed)),
            // Caching, clusters, graph updates, shared memory mode: none is asked for.
            CU_FUNC_ATTRIBUTE_CACHE_MODE_CA
            | CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET..=CU_FUNC_ATTRIBUTE_SHARED_MEMORY_MODE => 0,
            _ => return Err(CuError::INVALID_VALUE),
        };
        i32::try_from(value).map_err(|_| CuError::INVALID_VALUE)
    }

    /// Sets one of the attributes that can be set.
    pub(crate) fn set_attribute(&self, number: CUfunction_attribute, value: i32) -> CuResult {
        match number {
            CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => {
                let card = initialised()?.card(0)?;
                let most = attribute(card, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
                    - i32::try_from(self.kernel().shared).unwrap_or(i32::MAX);
                if value < 0 || value > most {
                    return Err(CuError::INVALID_VALUE);
                }
                self.max_dynamic_shared.store(value, Relaxed);
            }
            CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
                if (CU_SHAREDMEM_CARVEOUT_DEFAULT..=CU_SHAREDMEM_CARVEOUT_MAX_SHARED).contains(&value) =>
            {
                self.carveout.store(value, Relaxed);
            }
            // Clusters: taken note of by nobody, since nothing is computed.
            CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH..=CU_FUNC_ATTRIBUTE_SHARED_MEMORY_MODE => {}
            _ => return Err(CuError::INVALID_VALUE),
        }
        Ok(())
    }
}

impl Module {
    /// How many entry points it has.
    pub(crate) fn count(&self) -> usize {
        self.image.kernels.len()
    }

    /// The function called `name`.
    pub(crate) fn function(&self, handle: Handle, name: &CStr) -> CuResult<Handle> {
        Ok(self.function_at(handle, find(&self.image, name)?))
    }

    /// The function at a place below [`Self::count`].
    pub(crate) fn function_at(&self, handle: Handle, place: usize) -> Handle {
        let mut functions = lock(&self.functions);
        *functions.entry(place).or_insert_with(|| new_function(&self.image, place, self.context, handle))
    }

    /// Address and size of the variable called `name`.
    pub(crate) fn variable(&self, name: &CStr) -> CuResult<(u64, u64)> {
        let place = self.image.variables.iter().position(|variable| variable.name.as_c_str() == name);
        let place = place.ok_or(CuError::NOT_FOUND)?;
        Ok((self.variables[place], self.image.variables[place].size))
    }
}

impl Library {
    /// How many entry points it has.
    pub(crate) fn count(&self) -> usize {
        self.image.kernels.len()
    }

    /// The kernel called `name`.
    pub(crate) fn kernel(&self, handle: Handle, name: &CStr) -> CuResult<Handle> {
        Ok(self.kernel_at(handle, find(&self.image, name)?))
    }

    /// The kernel at a place below [`Self::count`].
    pub(crate) fn kernel_at(&self, handle: Handle, place: usize) -> Handle {
        *lock(&self.kernels).entry(place).or_insert_with(|| new_function(&self.image, place, 0, handle))
    }

    /// Its module in the current context, loaded now if it was not.
    pub(crate) fn module(&self) -> CuResult<(Handle, Arc<Module>)> {
        self.module_in(&*current()?)
    }

    fn module_in(&self, context: &Context) -> CuResult<(Handle, Arc<Module>)> {
        let mut modules = lock(&self.modules);
        let handle = if let Some(&module) = modules.get(&context.handle) {
            module
        } else {
            let module = load_into(context, Arc::clone(&self.image))?;
            modules.insert(context.handle, module);
            module
        };
        Ok((handle, MODULES.get(handle)?))
    }
}

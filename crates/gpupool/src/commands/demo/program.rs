//! The demo's GPU program: an ordinary client of the CUDA driver, which knows nothing of gpupool. It makes a context,
//! takes memory and launches a kernel again and again until its standard input closes.
//!
//! Thin FFI over the driver.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::io::Read as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use gpupool_nvidia::cuda::{CUDA_SUCCESS, CUresult};
use libloading::{Library, Symbol};

/// Memory that the program takes: 1 GiB.
const MEMORY: usize = 1 << 30;

/// Between two launches.
const PAUSE: Duration = Duration::from_millis(10);

/// A kernel that does nothing.
const KERNEL: &CStr =
    c".version 7.0\n.target sm_50\n.address_size 64\n.visible .entry work()\n{\n    ret;\n}\n";

type Code = CUresult;
type Handle = *mut c_void;

/// Options of `gpupool demo-program`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// Uses a GPU until standard input closes.
pub(crate) fn run(_args: &Args) -> anyhow::Result<ExitCode> {
    let closed = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&closed);
    std::thread::spawn(move || {
        // Whatever ends the reading ends the program.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        seen.store(true, Ordering::Release);
    });
    // SAFETY: the driver's initialisers are those that every CUDA program runs.
    let library = unsafe { Library::new("libcuda.so.1") }?;
    let driver = CudaDriver { library };
    driver.work(|| closed.load(Ordering::Acquire))?;
    Ok(ExitCode::SUCCESS)
}

struct CudaDriver {
    library: Library,
}

impl CudaDriver {
    fn work(&self, done: impl Fn() -> bool) -> anyhow::Result<()> {
        let mut context: Handle = std::ptr::null_mut();
        let mut memory: u64 = 0;
        let mut module: Handle = std::ptr::null_mut();
        let mut kernel: Handle = std::ptr::null_mut();
        // SAFETY: the documented signatures, live places for the answers, handles in the order of their making.
        unsafe {
            check("cuInit", self.get::<unsafe extern "C" fn(c_uint) -> Code>(c"cuInit")?(0))?;
            let create =
                self.get::<unsafe extern "C" fn(*mut Handle, c_uint, c_int) -> Code>(c"cuCtxCreate_v2")?;
            check("cuCtxCreate", create(&raw mut context, 0, 0))?;
            let allocate = self.get::<unsafe extern "C" fn(*mut u64, usize) -> Code>(c"cuMemAlloc_v2")?;
            check("cuMemAlloc", allocate(&raw mut memory, MEMORY))?;
            let load =
                self.get::<unsafe extern "C" fn(*mut Handle, *const c_char) -> Code>(c"cuModuleLoadData")?;
            check("cuModuleLoadData", load(&raw mut module, KERNEL.as_ptr()))?;
            let find = self.get::<unsafe extern "C" fn(*mut Handle, Handle, *const c_char) -> Code>(
                c"cuModuleGetFunction",
            )?;
            check("cuModuleGetFunction", find(&raw mut kernel, module, c"work".as_ptr()))?;
            while !done() {
                self.launch(kernel)?;
                std::thread::sleep(PAUSE);
            }
            let free = self.get::<unsafe extern "C" fn(u64) -> Code>(c"cuMemFree_v2")?;
            check("cuMemFree", free(memory))?;
            let destroy = self.get::<unsafe extern "C" fn(Handle) -> Code>(c"cuCtxDestroy_v2")?;
            check("cuCtxDestroy", destroy(context))
        }
    }

    /// Runs the kernel once and waits for it.
    ///
    /// # Safety
    /// `kernel` must be a kernel without parameters of the current context.
    unsafe fn launch(&self, kernel: Handle) -> anyhow::Result<()> {
        type Launch = unsafe extern "C" fn(
            Handle,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            Handle,
            *mut Handle,
            *mut Handle,
        ) -> Code;
        let none = std::ptr::null_mut();
        // SAFETY: the documented signatures; one block of one thread, no parameters, the default stream.
        unsafe {
            let launch = self.get::<Launch>(c"cuLaunchKernel")?;
            let code = launch(kernel, 1, 1, 1, 1, 1, 1, 0, none, std::ptr::null_mut(), std::ptr::null_mut());
            check("cuLaunchKernel", code)?;
            check("cuCtxSynchronize", self.get::<unsafe extern "C" fn() -> Code>(c"cuCtxSynchronize")?())
        }
    }

    /// # Safety
    /// `F` must be the type of the driver's function of that name.
    unsafe fn get<F: Copy>(&self, name: &CStr) -> anyhow::Result<F> {
        // SAFETY: the caller's promise.
        let symbol: Symbol<'_, F> = unsafe { self.library.get(name.to_bytes_with_nul()) }
            .with_context(|| format!("the driver has no {}", name.to_string_lossy()))?;
        Ok(*symbol)
    }
}

fn check(what: &str, code: Code) -> anyhow::Result<()> {
    if code != CUDA_SUCCESS {
        bail!("{what} says {code}");
    }
    Ok(())
}

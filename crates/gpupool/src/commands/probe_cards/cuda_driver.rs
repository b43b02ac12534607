//! Thin FFI over the CUDA driver, and over NVML for one number: how much device memory a context takes.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::Path;

use anyhow::{Context as _, bail};
use gpupool_agent::cards::watch::context_memory;
use gpupool_agent::cards::{Probe, ProbedCard, format_uuid};
use gpupool_nvidia::cuda::{
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
    CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID,
    CUDA_SUCCESS, CUresult,
};
use libloading::{Library, Symbol};

/// One more than the highest `CUdevice_attribute` that is asked for: as many as the card table keeps.
const ATTRIBUTES: c_int = 192;

/// Bytes of a device's name.
const NAME: usize = 256;

type Code = CUresult;
type Device = c_int;

/// The driver, open and initialised.
struct CudaDriver {
    library: Library,
}

/// Opens the driver and asks it about every card, and measures a context on those that `may_be_measured`.
pub(super) fn probe(
    driver: &Path,
    nvml: &Path,
    may_be_measured: impl Fn(&str) -> bool,
) -> anyhow::Result<Probe> {
    let driver = CudaDriver::open(driver)?;
    let mut driver_version = 0;
    // SAFETY: the documented signature of the function of that name, and a live place for its answer.
    unsafe {
        let get: Symbol<'_, unsafe extern "C" fn(*mut c_int) -> Code> =
            driver.function(c"cuDriverGetVersion")?;
        driver.check("cuDriverGetVersion", get(&raw mut driver_version))?;
    }
    let card = |ordinal| driver.card(ordinal, nvml, &may_be_measured);
    let cards = (0..driver.count()?).map(card).collect::<anyhow::Result<_>>()?;
    Ok(Probe { driver_version, driver: None, cards })
}

impl CudaDriver {
    fn open(path: &Path) -> anyhow::Result<Self> {
        // SAFETY: a CUDA driver's initialisers may run in a process of one thread that does nothing else.
        let library = unsafe { Library::new(path) }.map_err(|failure| anyhow::anyhow!("{failure}"))?;
        let driver = Self { library };
        // SAFETY: the documented signature of the function of that name; its flags must be 0.
        let code = unsafe {
            let init: Symbol<'_, unsafe extern "C" fn(c_uint) -> Code> = driver.function(c"cuInit")?;
            init(0)
        };
        driver.check("cuInit", code)?;
        Ok(driver)
    }

    /// # Safety
    /// `F` must be the type of the driver's function of that name.
    unsafe fn function<F>(&self, name: &CStr) -> anyhow::Result<Symbol<'_, F>> {
        // SAFETY: the caller's promise.
        unsafe { self.library.get(name.to_bytes_with_nul()) }
            .with_context(|| format!("the driver has no {}", name.to_string_lossy()))
    }

    fn check(&self, what: &str, code: Code) -> anyhow::Result<()> {
        if code == CUDA_SUCCESS {
            return Ok(());
        }
        bail!("{what} says {code} ({})", self.error_name(code))
    }

    fn error_name(&self, code: Code) -> String {
        let mut name: *const c_char = std::ptr::null();
        // SAFETY: the documented signature; the answer is null or a string that lives as long as the driver.
        unsafe {
            let Ok(get) =
                self.function::<unsafe extern "C" fn(Code, *mut *const c_char) -> Code>(c"cuGetErrorName")
            else {
                return String::new();
            };
            if get(code, &raw mut name) != CUDA_SUCCESS || name.is_null() {
                return "an unknown error".to_owned();
            }
            CStr::from_ptr(name).to_string_lossy().into_owned()
        }
    }

    fn count(&self) -> anyhow::Result<Device> {
        let mut count = 0;
        // SAFETY: the documented signature, and a live place for the answer.
        unsafe {
            let get: Symbol<'_, unsafe extern "C" fn(*mut c_int) -> Code> =
                self.function(c"cuDeviceGetCount")?;
            self.check("cuDeviceGetCount", get(&raw mut count))?;
        }
        Ok(count)
    }

    fn card(
        &self,
        ordinal: c_int,
        nvml: &Path,
        may_be_measured: &dyn Fn(&str) -> bool,
    ) -> anyhow::Result<ProbedCard> {
        let mut device: Device = 0;
        let mut uuid = [0_u8; 16];
        let mut total_memory = 0_usize;
        let mut name = [0_u8; NAME];
        // SAFETY: the documented signatures, and live places of the documented sizes for the answers.
        unsafe {
            let get: Symbol<'_, unsafe extern "C" fn(*mut Device, c_int) -> Code> =
                self.function(c"cuDeviceGet")?;
            self.check("cuDeviceGet", get(&raw mut device, ordinal))?;
            let get: Symbol<'_, unsafe extern "C" fn(*mut u8, Device) -> Code> =
                self.function(c"cuDeviceGetUuid")?;
            self.check("cuDeviceGetUuid", get(uuid.as_mut_ptr(), device))?;
            let get: Symbol<'_, unsafe extern "C" fn(*mut usize, Device) -> Code> =
                self.function(c"cuDeviceTotalMem_v2")?;
            self.check("cuDeviceTotalMem", get(&raw mut total_memory, device))?;
            let get: Symbol<'_, unsafe extern "C" fn(*mut u8, c_int, Device) -> Code> =
                self.function(c"cuDeviceGetName")?;
            let room = c_int::try_from(NAME)?;
            self.check("cuDeviceGetName", get(name.as_mut_ptr(), room, device))?;
        }
        let uuid = format_uuid(uuid);
        let attributes = self.attributes(device)?;
        let find = |number: c_int| {
            let wanted = u32::try_from(number).unwrap_or(u32::MAX);
            attributes.iter().find(|(found, _)| *found == wanted).map_or(0, |(_, value)| *value)
        };
        let pci = |number| u32::try_from(find(number)).unwrap_or(0);
        let measured = if may_be_measured(&uuid) { self.context_bytes(device, &uuid, nvml)? } else { None };
        Ok(ProbedCard {
            name: CStr::from_bytes_until_nul(&name)?.to_string_lossy().into_owned(),
            total_memory: u64::try_from(total_memory)?,
            pci_domain: pci(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID),
            pci_bus: pci(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID),
            pci_device: pci(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID),
            cc_major: find(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
            cc_minor: find(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
            context_bytes: measured,
            attributes,
            uuid,
        })
    }

    fn attributes(&self, device: Device) -> anyhow::Result<Vec<(u32, i32)>> {
        let mut attributes = Vec::new();
        // SAFETY: the documented signature, and a live place for each answer.
        unsafe {
            let get: Symbol<'_, unsafe extern "C" fn(*mut c_int, c_int, Device) -> Code> =
                self.function(c"cuDeviceGetAttribute")?;
            for number in 1..ATTRIBUTES {
                let mut value = 0;
                if get(&raw mut value, number, device) == CUDA_SUCCESS {
                    attributes.push((u32::try_from(number)?, value));
                }
            }
        }
        Ok(attributes)
    }

    /// What NVML says that this process takes while it has one context on the card. Nothing, where no context can be
    /// made (the card is full or exclusive) or NVML does not list this process.
    fn context_bytes(&self, device: Device, uuid: &str, nvml: &Path) -> anyhow::Result<Option<u64>> {
        let mut context: *mut c_void = std::ptr::null_mut();
        // SAFETY: the documented signatures; the context is released as often as it was retained.
        unsafe {
            let retain: Symbol<'_, unsafe extern "C" fn(*mut *mut c_void, Device) -> Code> =
                self.function(c"cuDevicePrimaryCtxRetain")?;
            let release: Symbol<'_, unsafe extern "C" fn(Device) -> Code> =
                self.function(c"cuDevicePrimaryCtxRelease_v2")?;
            if retain(&raw mut context, device) != CUDA_SUCCESS {
                return Ok(None);
            }
            let bytes = context_memory(nvml, uuid, std::process::id());
            // The process ends next; a failure here has no further consequence.
            release(device);
            Ok(bytes)
        }
    }
}

//! Links. Nothing new is made: what comes out is what was put in, which is enough for code that is read and not run.

use std::sync::Mutex;

use gpupool_nvidia::cuda::{CU_JIT_INPUT_PTX, CU_JIT_NUM_INPUT_TYPES};

use crate::{
    error::{CuError, CuResult},
    handles::{Handle, Registry},
    sync::lock,
};

/// A `CUlinkState`: what was put in so far, and what came out.
#[derive(Debug, Default)]
pub(crate) struct Link {
    inputs: Mutex<Vec<(u32, Vec<u8>)>>,
    /// What came out; it lasts as long as the link.
    pub(crate) output: Mutex<Vec<u8>>,
}

pub(crate) static LINKS: Registry<Link> = Registry::new();

/// Adds code to a link; PTX up to its zero byte.
pub(crate) fn add(handle: Handle, kind: u32, bytes: &[u8]) -> CuResult {
    let link = LINKS.get(handle)?;
    if kind >= CU_JIT_NUM_INPUT_TYPES || bytes.is_empty() {
        return Err(CuError::INVALID_VALUE);
    }
    // Text is joined with more text: it ends where its zero byte is.
    let end = if kind == CU_JIT_INPUT_PTX { bytes.iter().position(|byte| *byte == 0) } else { None };
    let bytes = bytes[..end.unwrap_or(bytes.len())].to_vec();
    lock(&link.inputs).push((kind, bytes));
    Ok(())
}

/// The image: the first machine code that was put in, or all text together.
pub(crate) fn complete(link: &Link) -> CuResult<Vec<u8>> {
    let inputs = lock(&link.inputs);
    if let Some((_, code)) = inputs.iter().find(|(kind, _)| *kind != CU_JIT_INPUT_PTX) {
        return Ok(code.clone());
    }
    let mut text = Vec::new();
    for (_, part) in inputs.iter() {
        text.extend_from_slice(part);
        text.push(b'\n');
    }
    if text.is_empty() {
        return Err(CuError::INVALID_IMAGE);
    }
    text.push(0);
    Ok(text)
}

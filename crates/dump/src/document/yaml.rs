//! YAML, turned into JSON text before it is looked at, so that there is one reader of objects.

use gpupool_core::one_line::one_line;
use serde_json::Value;

use crate::error::{DocumentFault, DumpError};

/// The only document of a YAML text, as JSON.
pub(super) fn to_json(yaml: &str) -> Result<String, DumpError> {
    // A fleet's dump goes beyond the parser's usual limits, and is bounded by its own size. What makes a small file
    // large or deep, aliases and nesting, stays limited.
    let options = serde_saphyr::options! {
        // A node may be called n, or no.
        strict_booleans: true,
        budget: serde_saphyr::budget! {
            max_events: usize::MAX,
            max_nodes: usize::MAX,
            max_total_scalar_bytes: yaml.len().saturating_mul(2),
        },
    };
    let value: Value = serde_saphyr::from_str_with_options(yaml, options).map_err(|error| refused(&error))?;
    if !value.is_object() {
        return Err(DumpError::Yaml(
            "it is no mapping; save a dump with `kubectl get nodes -o json`".to_owned(),
        ));
    }
    serde_json::to_string(&value).map_err(|error| DumpError::Yaml(error.to_string()))
}

fn refused(error: &serde_saphyr::Error) -> DumpError {
    if let serde_saphyr::Error::MultipleDocuments { .. } = error.without_snippet() {
        return DocumentFault::SeveralDocuments.into();
    }
    let text = error.without_snippet().to_string();
    let first = text.lines().next().unwrap_or_default();
    let what = first.split_once(", set DuplicateKeyPolicy").map_or(first, |(what, _)| what);
    DumpError::Yaml(one_line(what, 200))
}

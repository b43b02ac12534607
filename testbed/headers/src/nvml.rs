//! NVML, read from `nvml.h`: every declaration carries the macro `DECLDIR`, those of old versions too.

use std::collections::BTreeSet;

/// The functions that `text` declares.
pub(crate) fn functions(text: &str) -> BTreeSet<String> {
    let declarations = text.lines().filter_map(|line| line.split_once("DECLDIR ").map(|parts| parts.1));
    declarations
        .filter_map(|declaration| {
            let name = declaration.split_once('(')?.0.trim_end().rsplit([' ', '*']).next()?;
            name.starts_with("nvml").then(|| name.to_owned())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_declaration_may_return_more_than_a_code() {
        let text = "nvmlReturn_t DECLDIR nvmlInit_v2 (void);
            const DECLDIR char* nvmlErrorString(nvmlReturn_t result);
            #define DECLDIR __declspec(dllexport)";
        assert_eq!(
            super::functions(text).into_iter().collect::<Vec<_>>(),
            ["nvmlErrorString", "nvmlInit_v2"]
        );
    }
}

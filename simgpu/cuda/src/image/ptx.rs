//! PTX text, read for its declarations. The grammar is in NVIDIA's "Parallel Thread Execution ISA"; this reads
//! `.version`, `.target`, `.entry` with parameters and `.maxntid`, and module variables.

use std::ffi::CString;

use crate::{
    error::{CuError, CuResult},
    image::{Image, Kernel, Variable},
};

/// Reads the declarations; `CUDA_ERROR_INVALID_PTX` where the text is no PTX.
pub(crate) fn parse(text: &str) -> CuResult<Image> {
    let text = without_comments(text);
    let tokens = tokens(&text);
    let after = |word: &str| {
        let place = tokens.iter().position(|token| *token == word)?;
        tokens.get(place + 1).copied()
    };
    after(".version").ok_or(CuError::INVALID_PTX)?;
    let target = after(".target").and_then(|target| target.strip_prefix("sm_"));
    let digits: String =
        target.ok_or(CuError::INVALID_PTX)?.chars().take_while(char::is_ascii_digit).collect();
    let architecture = digits.parse().map_err(|_| CuError::INVALID_PTX)?;

    let mut image =
        Image { kernels: Vec::new(), variables: Vec::new(), architecture, length: text.len() as u64 };
    let mut depth = 0_u32;
    for (place, token) in tokens.iter().enumerate() {
        match *token {
            "{" => depth += 1,
            "}" => depth = depth.checked_sub(1).ok_or(CuError::INVALID_PTX)?,
            ".entry" if depth == 0 => {
                image.kernels.push(entry(&tokens[place + 1..]).ok_or(CuError::INVALID_PTX)?);
            }
            ".global" | ".const" if depth == 0 => image.variables.extend(variable(&tokens[place + 1..])),
            _ => {}
        }
    }
    if depth == 0 { Ok(image) } else { Err(CuError::INVALID_PTX) }
}

fn without_comments(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find('/') {
        let (before, from) = rest.split_at(start);
        clean.push_str(before);
        let end = if from.starts_with("//") {
            from.find('\n').unwrap_or(from.len())
        } else if from.starts_with("/*") {
            from.find("*/").map_or(from.len(), |end| end + 2)
        } else {
            clean.push('/');
            1
        };
        rest = &from[end..];
    }
    clean.push_str(rest);
    clean
}

/// Words, and each bracket, comma and semicolon by itself; the insides of strings don't matter.
fn tokens(text: &str) -> Vec<&str> {
    let single = |c: char| "(){}[],;=".contains(c);
    let mut tokens = Vec::new();
    for word in text.split_ascii_whitespace() {
        let mut rest = word;
        while let Some(place) = rest.find(single) {
            if place > 0 {
                tokens.push(&rest[..place]);
            }
            tokens.push(&rest[place..=place]);
            rest = &rest[place + 1..];
        }
        if !rest.is_empty() {
            tokens.push(rest);
        }
    }
    tokens
}

/// Bytes of a type like `.u32`, `.v4.f32` or `.b8`.
fn type_size(token: &str) -> Option<usize> {
    let mut size = 1_usize;
    for part in token.split('.').filter(|part| !part.is_empty()) {
        let factor = match part {
            "v2" => 2,
            "v4" => 4,
            "v8" | "texref" | "samplerref" | "surfref" => 8,
            // Others end with their number of bits.
            _ => match part.trim_start_matches(|c: char| c.is_ascii_alphabetic()) {
                "8" => 1,
                "16" => 2,
                "32" | "16x2" => 4,
                "64" => 8,
                "128" => 16,
                _ => return None,
            },
        };
        size = size.checked_mul(factor)?;
    }
    Some(size)
}

/// A declaration: modifiers, a type, a name, perhaps `[count]`s; its alignment and size.
fn declared<'a>(tokens: &[&'a str]) -> Option<(&'a str, usize, usize)> {
    let (mut size, mut align, mut name) = (None, None, None);
    let mut place = 0;
    while let Some(&token) = tokens.get(place) {
        match token {
            ".align" => {
                align = tokens.get(place + 1)?.parse().ok();
                place += 1;
            }
            "[" => {
                let count: usize = tokens.get(place + 1)?.parse().unwrap_or(0);
                size = size.map(|size: usize| size.saturating_mul(count));
                place += 2;
            }
            _ if token.starts_with('.') => {
                if let Some(bytes) = type_size(token) {
                    // A vector may be written apart from its element: `.v4 .f32`.
                    size = Some(size.unwrap_or(1).saturating_mul(bytes));
                }
            }
            "," | ";" | ")" | "=" => break,
            _ => name = name.or(Some(token)),
        }
        place += 1;
    }
    let size = size?;
    Some((name?, align.unwrap_or_else(|| size.clamp(1, 16)), size))
}

/// `NAME ( parameters ) directives {`, after `.entry`.
fn entry(tokens: &[&str]) -> Option<Kernel> {
    let mut kernel = Kernel::named(tokens.first()?)?;
    let mut parameters = Vec::new();
    let mut rest = &tokens[1..];
    if rest.first() == Some(&"(") {
        let end = rest.iter().position(|token| *token == ")")?;
        let mut offset = 0_usize;
        for parameter in rest[1..end].split(|token| *token == ",").filter(|tokens| !tokens.is_empty()) {
            // `.param .u64 .ptr .global .align 4 name`: the alignment is that of what it points to.
            let pointed = parameter.iter().position(|token| *token == ".ptr");
            let (_, align, size) = match pointed {
                Some(_) => ("", 8, 8),
                None => declared(parameter)?,
            };
            offset = offset.checked_next_multiple_of(align.max(1))?;
            parameters.push((offset, size));
            offset = offset.checked_add(size)?;
        }
        rest = &rest[end + 1..];
    }
    kernel.parameters = Some(parameters);
    let head = rest.split(|token| matches!(*token, "{" | ";")).next().unwrap_or_default();
    if let Some(place) = head.iter().position(|token| matches!(*token, ".maxntid" | ".reqntid")) {
        let numbers = head[place + 1..].iter().filter(|token| **token != ",");
        let sides = numbers.map_while(|token| token.parse::<u32>().ok());
        kernel.max_threads = sides.fold(1, u32::saturating_mul);
    }
    kernel.shared = shared(&rest[head.len()..]);
    Some(kernel)
}

/// Bytes of the shared variables of the body that `tokens` begin with.
fn shared(tokens: &[&str]) -> u32 {
    let mut depth = 0;
    let mut bytes = 0_usize;
    for (place, token) in tokens.iter().enumerate() {
        match *token {
            "{" => depth += 1,
            "}" => depth -= 1,
            ".shared" => {
                bytes =
                    declared(&tokens[place + 1..]).map_or(bytes, |(_, _, size)| bytes.saturating_add(size));
            }
            _ => {}
        }
        if depth <= 0 {
            break;
        }
    }
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

fn variable(tokens: &[&str]) -> Option<Variable> {
    let (name, _, size) = declared(tokens)?;
    Some(Variable { name: CString::new(name).ok()?, size: size as u64, initial: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "
        // .entry not_this()
        .version 8.8
        .target sm_90a, texmode_independent
        .address_size 64
        .global .align 4 .b8 table[400];
        .visible .const .align 8 .v2 .f32 pair = {1.0, 2.0};
        .extern .shared .align 16 .b8 dynamic[];
        .visible .func helper(.param .b32 x) { ret; }
        .visible .entry scale(
            .param .u64 .ptr .global .align 4 scale_param_0, /* the first */
            .param .f32 scale_param_1,
            .param .align 8 .b8 scale_param_2[24],
            .param .u32 scale_param_3
        )
        .maxntid 128, 2, 1
        {
            .shared .align 4 .b8 buffer[1024];
            { ld.global.f32 %f1, [%rd1]; }
            ret;
        }
        .entry empty() { ret; }
        .entry bare { ret; }";

    #[test]
    fn entry_points_and_their_parameters_are_found() {
        let image = parse(SAMPLE).unwrap();
        assert_eq!(image.architecture, 90);
        let names: Vec<_> = image.kernels.iter().map(|kernel| kernel.name.to_str().unwrap()).collect();
        assert_eq!(names, ["scale", "empty", "bare"]);
        let scale = &image.kernels[0];
        assert_eq!(scale.parameters, Some(vec![(0, 8), (8, 4), (16, 24), (40, 4)]));
        assert_eq!(scale.max_threads, 256);
        assert_eq!(scale.shared, 1024);
        assert_eq!(image.kernels[1].parameters, Some(Vec::new()));
    }

    #[test]
    fn module_variables_have_sizes() {
        let image = parse(SAMPLE).unwrap();
        let sizes: Vec<_> =
            image.variables.iter().map(|one| (one.name.to_str().unwrap(), one.size)).collect();
        assert_eq!(sizes, [("table", 400), ("pair", 8)]);
    }

    #[test]
    fn sizes_beyond_all_memory_end_no_program() {
        let most = usize::MAX;
        for declared in [
            format!(".entry k(.param .align {most} .b8 a, .param .align {most} .b8 b[{most}])"),
            format!(".entry k(.param .b8 a[{most}], .param .b8 b[{most}])"),
            format!(".entry k(.param .u64 .v8 a[{most}]"),
            format!(".global {} a;", ".v8".repeat(100)),
            format!(".global .v8 .b8 a[{most}] .v8;"),
            ".entry k .maxntid 4294967295, 4294967295, 2 {}".to_owned(),
            format!(".entry k() {{ .shared .b8 a[{most}]; .shared .b8 b[{most}]; }}"),
        ] {
            let _ = parse(&format!(".version 8.0 .target sm_80 {declared}"));
        }
    }

    #[test]
    fn what_is_no_ptx_is_refused() {
        for text in
            ["", "hello", ".version 8.0", ".version 8.0 .target gpu", ".version 8 .target sm_80 .entry k("]
        {
            assert_eq!(parse(text), Err(CuError::INVALID_PTX), "{text}");
        }
    }
}

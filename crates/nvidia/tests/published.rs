//! Every value, size and offset of the crate, compared with the published headers by a C program that is compiled
//! against each release of them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use gpupool_headers::{Headers, Release};
use gpupool_nvidia::{Constant, Structure, cuda, nvml};

/// A header, and what the crate says of it.
struct Header {
    name: &'static str,
    constants: &'static [&'static [Constant]],
    structures: &'static [&'static [Structure]],
}

const CUDA: Header = Header { name: "cuda.h", constants: cuda::CONSTANTS, structures: cuda::STRUCTURES };
const NVML: Header = Header { name: "nvml.h", constants: nvml::CONSTANTS, structures: nvml::STRUCTURES };

const fn major(release: Release) -> u32 {
    match release {
        Release::Cuda12 => 12,
        Release::Cuda13 => 13,
    }
}

impl Header {
    fn constants(&self) -> impl Iterator<Item = &'static Constant> {
        self.constants.iter().copied().flatten()
    }

    fn structures(&self) -> impl Iterator<Item = &'static Structure> {
        self.structures.iter().copied().flatten()
    }

    /// A program that prints what differs: a line each.
    fn program(&self, release: Release) -> String {
        let mut program = String::from(PREAMBLE);
        writeln!(program, "#include <{}>\nint main(void) {{", self.name).unwrap();
        for &Constant { name, value, since } in self.constants() {
            if since <= major(release) {
                writeln!(program, "SAME(\"{name}\", (long long)({name}), {value:#x}ULL);").unwrap();
            }
        }
        for structure in self.structures() {
            compare_structure(&mut program, structure, release);
        }
        program + "}\n"
    }

    /// The lines of that program, run against the header in `include`.
    fn differences(&self, release: Release, include: &Path) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let (source, binary) = (folder.path().join("compare.c"), folder.path().join("compare"));
        std::fs::write(&source, self.program(release)).unwrap();
        // Structures of CUDA before 3.2 are declared only for the driver's own use.
        let compiled = Command::new("gcc")
            .args(["-w", "-D__CUDA_API_VERSION_INTERNAL", "-isystem"])
            .arg(include)
            .arg("-o")
            .args([&binary, &source])
            .output()
            .unwrap();
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        let output = Command::new(&binary).output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
    }

    /// Names that are marked as the newer header's but stand in the older one as well.
    fn wrongly_marked(&self, older_include: &Path) -> Vec<&'static str> {
        let text = std::fs::read_to_string(older_include.join(self.name)).unwrap();
        let words: BTreeSet<_> = text.split(|c: char| c != '_' && !c.is_ascii_alphanumeric()).collect();
        let newer = self.constants().filter(|constant| constant.since > 12).map(|constant| constant.name);
        newer.filter(|name| words.contains(name)).collect()
    }
}

const PREAMBLE: &str = r#"
#include <stddef.h>
#include <stdio.h>
#define SAME(what, theirs, ours) \
    if ((unsigned long long)(theirs) != (ours)) \
        printf("%s: %lld in the header, %lld here\n", what, (long long)(theirs), (long long)(ours))
#define SIZE(type, member) sizeof(((type *)0)->member)
"#;

fn compare_structure(program: &mut String, structure: &Structure, release: Release) {
    let &Structure { name, member, size, fields } = structure;
    let (whole, prefix, start) = match member {
        "" => (format!("sizeof({name})"), String::new(), "0".to_owned()),
        _ => (format!("SIZE({name}, {member})"), format!("{member}."), format!("offsetof({name}, {member})")),
    };
    writeln!(program, "SAME(\"size of {name} {member}\", {whole}, {size}ULL);").unwrap();
    let known = |since: u32| since <= major(release);
    for field in fields.iter().filter(|field| !field.path.is_empty() && known(field.since)) {
        let path = format!("{prefix}{}", field.path.trim_start_matches("r#"));
        let (offset, size) = (field.offset, field.size);
        writeln!(
            program,
            "SAME(\"offset of {name}.{path}\", offsetof({name}, {path}) - {start}, {offset}ULL);"
        )
        .unwrap();
        writeln!(program, "SAME(\"size of {name}.{path}\", SIZE({name}, {path}), {size}ULL);").unwrap();
    }
}

fn compare(header: &Header, include: impl Fn(&Headers, Release) -> std::path::PathBuf) {
    let headers = Headers::fetch().unwrap();
    for release in [Release::Cuda12, Release::Cuda13] {
        let differences = header.differences(release, &include(&headers, release));
        assert_eq!(differences, [] as [String; 0], "{} of {release:?}", header.name);
    }
    let wrong = header.wrongly_marked(&include(&headers, Release::Cuda12));
    assert_eq!(wrong, [] as [&str; 0], "marked `since 13`, but 12.9 has them");
}

#[test]
fn cuda_is_as_its_headers_have_it() {
    compare(&CUDA, Headers::include);
}

#[test]
fn nvml_is_as_its_headers_have_it() {
    compare(&NVML, Headers::nvml_include);
}

/// Without this the comparison could be of nothing.
#[test]
fn a_wrong_value_size_or_offset_is_told() {
    use gpupool_nvidia::Field;
    const FIELDS: &[Field] = &[
        Field { path: "type", offset: 4, size: 4, since: 12 },
        Field { path: "id", offset: 4, size: 8, since: 12 },
    ];
    let header = Header {
        name: "cuda.h",
        constants: &[&[Constant { name: "CU_MEM_LOCATION_TYPE_DEVICE", value: 2, since: 12 }]],
        structures: &[&[Structure { name: "CUmemLocation", member: "", size: 12, fields: FIELDS }]],
    };
    let include = Headers::fetch().unwrap().include(Release::Cuda13);
    let told = [
        "CU_MEM_LOCATION_TYPE_DEVICE: 1 in the header, 2 here",
        "size of CUmemLocation : 8 in the header, 12 here",
        "offset of CUmemLocation.type: 0 in the header, 4 here",
        "size of CUmemLocation.id: 4 in the header, 8 here",
    ];
    assert_eq!(header.differences(Release::Cuda13, &include), told);
}

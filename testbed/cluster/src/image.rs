//! Container images made on the spot from files of this machine: nothing is ever pulled.
//!
//! An image is written as an OCI image layout in a tar, which containerd imports under the name that manifests use.
//! Programs bring the shared libraries that they are linked with, so what runs here runs in the container.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use ring::digest::{Context, SHA256};
use serde_json::{Value, json};
use tar::{EntryType, Header};

use crate::Error;

/// What a shell in a container is expected to find; all are in Debian's essential packages or in procps.
const TOOLS: &[&str] = &[
    "bash", "cat", "chmod", "cp", "cut", "date", "dirname", "env", "find", "grep", "head", "id", "kill",
    "ln", "ls", "mkdir", "mv", "ps", "rm", "sed", "seq", "sh", "sleep", "sort", "stat", "tail", "tee",
    "timeout", "touch", "tr", "true", "wc",
];

/// Libraries that a system with the GNU C library has, beside the C library: those of programs that come later.
const RUNTIME: &[&str] =
    &["libdl.so.2", "libgcc_s.so.1", "libm.so.6", "libnss_files.so.2", "libpthread.so.0", "librt.so.1"];

/// Folders that are links into `/usr`, as distributions have them today.
const MERGED: &[&str] = &["bin", "lib", "lib64", "sbin"];

/// An image, before it is made.
#[derive(Clone, Debug)]
pub struct Image {
    name: String,
    entries: BTreeMap<PathBuf, Entry>,
    entrypoint: Vec<String>,
}

#[derive(Clone, Debug)]
enum Entry {
    Folder(u32),
    /// A copy of a file of this machine.
    Copy(PathBuf),
    /// A file with this content and mode.
    Content(Vec<u8>, u32),
    Link(String),
}

impl Image {
    /// An image with nothing but empty folders, under the full name that manifests use, with registry and tag.
    pub fn new(name: impl Into<String>) -> Self {
        let mut image = Self { name: name.into(), entries: BTreeMap::new(), entrypoint: Vec::new() };
        for folder in ["dev", "etc", "proc", "root", "run", "sys", "usr", "usr/bin", "usr/sbin", "var"] {
            image.entries.insert(folder.into(), Entry::Folder(0o755));
        }
        image.entries.insert("tmp".into(), Entry::Folder(0o1777));
        for name in MERGED {
            image.entries.insert((*name).into(), Entry::Link(format!("usr/{name}")));
        }
        image
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds a copy of a file of this machine; it is executable in the image when it is here.
    #[must_use]
    pub fn file(mut self, path: impl AsRef<Path>, from: impl Into<PathBuf>) -> Self {
        self.add(path.as_ref(), Entry::Copy(from.into()));
        self
    }

    /// Adds a file with this text.
    #[must_use]
    pub fn text(mut self, path: impl AsRef<Path>, text: impl Into<String>) -> Self {
        self.add(path.as_ref(), Entry::Content(text.into().into_bytes(), 0o644));
        self
    }

    /// Adds a program of this machine and the shared libraries it is linked with.
    pub fn program(self, path: impl AsRef<Path>, from: impl AsRef<Path>) -> Result<Self, Error> {
        let from = from.as_ref();
        let mut image = self.file(path, from);
        for library in libraries(from)? {
            image.add(&library, Entry::Copy(library.clone()));
        }
        Ok(image)
    }

    /// Adds a program that was made for this image and is not kept.
    pub(crate) fn made_program(mut self, path: impl AsRef<Path>, from: &Path) -> Result<Self, Error> {
        for library in libraries(from)? {
            self.add(&library, Entry::Copy(library.clone()));
        }
        let content = fs::read(from).map_err(Error::file("read", from))?;
        self.add(path.as_ref(), Entry::Content(content, 0o755));
        Ok(self)
    }

    /// Adds bash, the usual small tools and what programs for the GNU C library expect.
    pub fn shell(self) -> Result<Self, Error> {
        let mut image = self
            .text("etc/passwd", "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/:/bin/false\n")
            .text("etc/group", "root:x:0:\nnogroup:x:65534:\n")
            .text("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n");
        for tool in TOOLS {
            let from = find_program(tool)?;
            image = image.program(Path::new("usr/bin").join(tool), from)?;
        }
        let c_library = libraries(&find_program("bash")?)?.into_iter().find(|it| it.ends_with("libc.so.6"));
        let folder = c_library.as_deref().and_then(Path::parent).map(Path::to_owned);
        for library in RUNTIME.iter().filter_map(|name| folder.as_ref().map(|folder| folder.join(name))) {
            // Newer C libraries have some of them inside.
            if library.exists() {
                image.add(&library, Entry::Copy(library.clone()));
            }
        }
        Ok(image)
    }

    /// What runs where a manifest gives no command.
    #[must_use]
    pub fn entrypoint(mut self, arguments: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.entrypoint = arguments.into_iter().map(Into::into).collect();
        self
    }

    fn add(&mut self, path: &Path, entry: Entry) {
        let path = inside(path);
        for folder in path.ancestors().skip(1).filter(|it| !it.as_os_str().is_empty()) {
            self.entries.entry(folder.to_owned()).or_insert(Entry::Folder(0o755));
        }
        self.entries.insert(path, entry);
    }

    fn write_layer(&self, path: &Path) -> io::Result<()> {
        let mut layer = tar::Builder::new(io::BufWriter::new(File::create(path)?));
        for (path, entry) in &self.entries {
            match entry {
                Entry::Folder(mode) => {
                    layer.append_data(&mut header(EntryType::Directory, 0, *mode), path, io::empty())?;
                }
                Entry::Content(content, mode) => {
                    let mut header = header(EntryType::Regular, content.len() as u64, *mode);
                    layer.append_data(&mut header, path, &content[..])?;
                }
                Entry::Link(target) => {
                    layer.append_link(&mut header(EntryType::Symlink, 0, 0o777), path, target)?;
                }
                Entry::Copy(from) => {
                    let in_context = |error: io::Error| {
                        io::Error::new(error.kind(), format!("{}: {error}", from.display()))
                    };
                    let file = File::open(from).map_err(in_context)?;
                    let found = file.metadata().map_err(in_context)?;
                    let mode = std::os::unix::fs::MetadataExt::mode(&found) & 0o755;
                    layer.append_data(
                        &mut header(EntryType::Regular, found.len(), mode),
                        path,
                        BufReader::new(file),
                    )?;
                }
            }
        }
        layer.into_inner()?.flush()
    }

    /// Adds the image's blobs to a layout; gives its entry in the layout's index.
    fn add_to<W: Write>(&self, layout: &mut tar::Builder<W>, layer: &Path) -> io::Result<Value> {
        self.write_layer(layer)?;
        let digest = digest_of(File::open(layer)?)?;
        let size = fs::metadata(layer)?.len();
        layout.append_data(
            &mut header(EntryType::Regular, size, 0o644),
            blob(&digest),
            File::open(layer)?,
        )?;
        let layer = descriptor("layer.v1.tar", &digest, size);
        let config = json!({
            "architecture": architecture(),
            "os": "linux",
            "config": {"Entrypoint": self.entrypoint, "Env": ["PATH=/usr/sbin:/usr/bin"], "WorkingDir": "/"},
            "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
        });
        let config = add_json(layout, "config.v1+json", &config)?;
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": config,
            "layers": [layer],
        });
        let mut named = add_json(layout, "manifest.v1+json", &manifest)?;
        named["annotations"] = json!({"io.containerd.image.name": self.name});
        Ok(named)
    }
}

/// Writes images into one tar that containerd imports. The folder is for intermediate files.
pub(crate) fn write(images: &[Image], path: &Path, folder: &Path) -> Result<(), Error> {
    let failed = |source| Error::file("write", path)(source);
    let layer = folder.join("layer");
    let mut layout = tar::Builder::new(io::BufWriter::new(File::create(path).map_err(failed)?));
    let mut manifests = Vec::new();
    for image in images {
        let added = image.add_to(&mut layout, &layer);
        manifests.push(added.map_err(|source| Error::Image { name: image.name.clone(), source })?);
    }
    let index = json!({"schemaVersion": 2, "manifests": manifests}).to_string();
    let mut finish = || -> io::Result<()> {
        add_text(&mut layout, Path::new("index.json"), &index)?;
        add_text(&mut layout, Path::new("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)?;
        layout.finish()?;
        layout.get_mut().flush()
    };
    finish().map_err(failed)?;
    match fs::remove_file(&layer) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::file("remove", &layer)(error)),
        _ => Ok(()),
    }
}

fn add_text<W: Write>(layout: &mut tar::Builder<W>, path: &Path, text: &str) -> io::Result<()> {
    layout.append_data(&mut header(EntryType::Regular, text.len() as u64, 0o644), path, text.as_bytes())
}

/// Adds a blob of JSON; gives its descriptor.
fn add_json<W: Write>(layout: &mut tar::Builder<W>, kind: &str, value: &Value) -> io::Result<Value> {
    let text = value.to_string();
    let digest = digest_of(text.as_bytes())?;
    add_text(layout, &blob(&digest), &text)?;
    Ok(descriptor(kind, &digest, text.len() as u64))
}

/// A path as it is in the image: relative, and below `usr` where the top folder is a link into it.
fn inside(path: &Path) -> PathBuf {
    let path = path.strip_prefix("/").unwrap_or(path);
    let merged =
        path.components().next().is_some_and(|first| MERGED.iter().any(|it| first.as_os_str() == *it));
    if merged && path.components().count() > 1 { Path::new("usr").join(path) } else { path.to_owned() }
}

fn header(kind: EntryType, size: u64, mode: u32) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(mode);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

fn blob(digest: &str) -> PathBuf {
    Path::new("blobs/sha256").join(digest)
}

fn descriptor(kind: &str, digest: &str, size: u64) -> Value {
    json!({
        "mediaType": format!("application/vnd.oci.image.{kind}"),
        "digest": format!("sha256:{digest}"),
        "size": size,
    })
}

fn digest_of(mut text: impl Read) -> io::Result<String> {
    let mut digest = Context::new(&SHA256);
    let mut part = vec![0; 1 << 16];
    loop {
        let length = text.read(&mut part)?;
        if length == 0 {
            break;
        }
        digest.update(&part[..length]);
    }
    let mut hexadecimal = String::new();
    for byte in digest.finish().as_ref() {
        // Writing to a string does not fail.
        let _ = write!(hexadecimal, "{byte:02x}");
    }
    Ok(hexadecimal)
}

/// This machine's architecture by its name in images.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// A program by its name: in PATH, or where Debian keeps it.
pub(crate) fn find_program(name: &str) -> Result<PathBuf, Error> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(usual)
        .map(|folder| folder.join(name))
        .find(|it| it.is_file())
        .ok_or_else(|| Error::NoProgram { name: name.to_owned() })
}

/// The shared libraries of a program or library, the dynamic loader included; none for a static one.
fn libraries(program: &Path) -> Result<BTreeSet<PathBuf>, Error> {
    let spawned = Command::new("ldd").arg(program).env_clear().env("PATH", "/usr/bin:/bin").output();
    let output = spawned.map_err(|source| Error::Spawn { name: "ldd".to_owned(), source })?;
    // Its exit status only tells static programs from others.
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let path = |line: &str| {
        let found = line.split_once("=>").map_or(line, |(_, found)| found);
        let path = found.trim().split(" (").next().unwrap_or_default();
        path.starts_with('/').then(|| PathBuf::from(path))
    };
    match said.lines().find(|line| line.contains("not found")) {
        Some(line) => Err(Error::NoLibrary { program: program.to_owned(), line: line.trim().to_owned() }),
        None => Ok(said.lines().filter_map(path).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_holds_a_program_with_all_its_libraries_and_every_parent_folder() {
        let folder = tempfile::tempdir().unwrap();
        let tar = folder.path().join("image.tar");
        let image = Image::new("images.example/a:1")
            .program("/opt/deep/bash", find_program("bash").unwrap())
            .unwrap();
        write(&[image], &tar, folder.path()).unwrap();
        let mut layout = tar::Archive::new(File::open(&tar).unwrap());
        let (mut blobs, mut index) = (BTreeMap::new(), String::new());
        for entry in layout.entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().into_owned();
            let mut text = Vec::new();
            entry.read_to_end(&mut text).unwrap();
            if path == Path::new("index.json") {
                index = String::from_utf8(text).unwrap();
            } else if let Ok(digest) = path.strip_prefix("blobs/sha256") {
                assert_eq!(digest_of(&text[..]).unwrap(), digest.to_str().unwrap());
                blobs.insert(format!("sha256:{}", digest.display()), text);
            }
        }
        let index: Value = serde_json::from_str(&index).unwrap();
        assert_eq!(index["manifests"][0]["annotations"]["io.containerd.image.name"], "images.example/a:1");
        let read = |value: &Value| blobs[value["digest"].as_str().unwrap()].clone();
        let manifest: Value = serde_json::from_slice(&read(&index["manifests"][0])).unwrap();
        let layer = read(&manifest["layers"][0]);
        let config: Value = serde_json::from_slice(&read(&manifest["config"])).unwrap();
        assert_eq!(config["rootfs"]["diff_ids"][0], manifest["layers"][0]["digest"]);
        let mut layer = tar::Archive::new(&layer[..]);
        let paths: Vec<PathBuf> =
            layer.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().into_owned()).collect();
        for path in ["opt/deep", "opt/deep/bash", "tmp", "lib64"] {
            assert!(paths.iter().any(|it| it == Path::new(path)), "{path} is missing: {paths:?}");
        }
        assert!(paths.iter().any(|it| it.ends_with("libc.so.6")), "{paths:?}");
    }

    #[test]
    fn a_missing_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let image = Image::new("images.example/a:1").file("x", "/no/such/file");
        let error = write(&[image], &folder.path().join("tar"), folder.path()).unwrap_err().to_string();
        assert!(error.contains("a:1") && error.contains("/no/such/file"), "{error}");
    }
}

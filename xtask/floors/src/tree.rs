//! A crate's modules and what each of them names, read from its files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use quote::ToTokens as _;
use syn::{Attribute, Item, UseTree};

use crate::paths::{self, Named};

/// Why a crate's modules cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TreeError {
    /// A file is missing or unreadable.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system answered.
        source: std::io::Error,
    },
    /// A file is no Rust.
    #[error("{}:{line}: {reason}", path.display())]
    NotRust {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What the parser says.
        reason: String,
    },
    /// A module is declared and has no file.
    #[error("{}: module `{module}` has no file", declared_in.display())]
    NoFile {
        /// The file that declares it.
        declared_in: PathBuf,
        /// The module.
        module: String,
    },
}

/// A module, with those inside it.
#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) file: PathBuf,
    /// In the order in which they are declared.
    pub(crate) children: Vec<(String, Self)>,
    /// Every path that begins with `crate`, `self` or `super`.
    pub(crate) named: Vec<Named>,
    /// Names that `use` lines bring in, with the path that each comes from.
    pub(crate) imported: BTreeMap<String, Vec<String>>,
}

impl Module {
    pub(crate) fn child(&self, name: &str) -> Option<&Self> {
        self.children.iter().find(|(child, _)| child == name).map(|(_, module)| module)
    }
}

/// Reads the crate whose root is `file`.
pub(crate) fn read(file: &Path) -> Result<Module, TreeError> {
    let folder = file.parent().unwrap_or_else(|| Path::new("")).to_owned();
    read_file(file, &folder)
}

fn read_file(file: &Path, folder: &Path) -> Result<Module, TreeError> {
    let text = std::fs::read_to_string(file)
        .map_err(|source| TreeError::Unreadable { path: file.to_owned(), source })?;
    let parsed = syn::parse_file(&text).map_err(|error| TreeError::NotRust {
        path: file.to_owned(),
        line: error.span().start().line,
        reason: error.to_string(),
    })?;
    read_items(&parsed.items, file, folder)
}

/// The module that these items make up; the files of its children lie in `folder`.
fn read_items(items: &[Item], file: &Path, folder: &Path) -> Result<Module, TreeError> {
    let (file, mut children) = (file.to_owned(), Vec::new());
    let (mut named, mut imported) = (Vec::new(), BTreeMap::new());
    for item in items {
        match item {
            Item::Mod(module) if is_for_tests(&module.attrs) => {}
            Item::Mod(module) => {
                let name = module.ident.to_string();
                let inside = folder.join(&name);
                let child = match &module.content {
                    Some((_, items)) => read_items(items, &file, &inside)?,
                    None => read_file(&file_of(&module.attrs, &name, folder, &file)?, &inside)?,
                };
                children.push((name, child));
            }
            other if is_for_tests(attributes(other)) => {}
            other => {
                if let Item::Use(line) = other {
                    import(&line.tree, &mut Vec::new(), &mut imported);
                }
                paths::collect(other.to_token_stream(), &mut named);
            }
        }
    }
    Ok(Module { file, children, named, imported })
}

/// Where a declared module lies: where `#[path]` says, else in `name.rs` or `name/mod.rs`.
fn file_of(attrs: &[Attribute], name: &str, folder: &Path, by: &Path) -> Result<PathBuf, TreeError> {
    let given = attrs.iter().find(|attr| attr.path().is_ident("path")).and_then(|attr| {
        let syn::Meta::NameValue(pair) = &attr.meta else { return None };
        let text = pair.value.to_token_stream().to_string();
        Some(by.parent()?.join(text.trim_matches('"')))
    });
    let usual = [folder.join(format!("{name}.rs")), folder.join(name).join("mod.rs")];
    let found = given.into_iter().chain(usual).find(|path| path.is_file());
    found.ok_or_else(|| TreeError::NoFile { declared_in: by.to_owned(), module: name.to_owned() })
}

fn import(tree: &UseTree, prefix: &mut Vec<String>, imported: &mut BTreeMap<String, Vec<String>>) {
    let mut add = |name: String, last: String| {
        let mut path = prefix.clone();
        if last != "self" {
            path.push(last);
        }
        imported.insert(name, path);
    };
    match tree {
        UseTree::Name(name) if name.ident == "self" => {
            add(prefix.last().cloned().unwrap_or_default(), "self".to_owned());
        }
        UseTree::Name(name) => add(name.ident.to_string(), name.ident.to_string()),
        UseTree::Rename(name) => add(name.rename.to_string(), name.ident.to_string()),
        UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            import(&path.tree, prefix, imported);
            prefix.pop();
        }
        UseTree::Group(group) => group.items.iter().for_each(|tree| import(tree, prefix, imported)),
        UseTree::Glob(_) => {}
    }
}

/// Whether an item exists in tests only.
fn is_for_tests(attrs: &[Attribute]) -> bool {
    attrs.iter().any(|attr| {
        let text = attr.meta.to_token_stream().to_string().replace(' ', "");
        text == "test" || text == "cfg(test)" || text.starts_with("cfg(all(test,")
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

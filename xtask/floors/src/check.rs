//! What a crate's modules name, held against its floors.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::floors::Floors;
use crate::paths::Named;
use crate::tree::{self, Module};

/// A rule that a line breaks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Breach {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1; 0 for the whole file.
    pub line: usize,
    /// Which rule, with the names of the modules.
    pub sentence: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            return write!(f, "{}: {}", self.file.display(), self.sentence);
        }
        write!(f, "{}:{}: {}", self.file.display(), self.line, self.sentence)
    }
}

/// Checks the crate whose manifest lies in `folder` and whose root is the file `root`; gives every breach, by file and
/// line.
pub fn check(folder: &Path, root: &Path) -> Result<Vec<Breach>, Error> {
    let floors = Floors::read(folder)?;
    let tree = tree::read(root)?;
    let mut check = Check { floors: &floors, root: &tree, breaches: BTreeSet::new(), uses: BTreeMap::new() };
    check.declarations();
    check.module(&mut Vec::new(), &tree);
    check.circles();
    Ok(check.breaches.into_iter().collect())
}

/// Names of modules from the root down; the root's is empty.
type ModulePath = Vec<String>;

/// Which of two siblings names the other, below one parent; with the first such line.
type Uses = BTreeMap<ModulePath, BTreeMap<(String, String), (PathBuf, usize)>>;

struct Check<'a> {
    floors: &'a Floors,
    root: &'a Module,
    breaches: BTreeSet<Breach>,
    uses: Uses,
}

impl Check<'_> {
    /// Every module on top stands on a floor, every name on a floor is a module, and the root lists them in that order.
    fn declarations(&mut self) {
        let mut highest = (0, "");
        for (name, _) in &self.root.children {
            let Some(floor) = self.floors.of(name) else {
                let sentence = format!("module `{name}` stands on no floor");
                self.breach(self.floors.path(), 0, sentence);
                continue;
            };
            if floor < highest.0 {
                let sentence = format!("`{name}` is declared below `{}` and stands above it", highest.1);
                self.breach(&self.root.file, 0, sentence);
            }
            highest = highest.max((floor, name));
        }
        for name in self.floors.modules().filter(|name| self.root.child(name).is_none()) {
            self.breach(self.floors.path(), 0, format!("there is no module `{name}`"));
        }
    }

    fn module(&mut self, path: &mut ModulePath, module: &Module) {
        if module.file.ends_with("mod.rs") {
            let name = path.last().map(String::as_str).unwrap_or_default();
            self.breach(&module.file, 0, format!("write this module as `{name}.rs` beside its folder"));
        }
        for named in &module.named {
            self.named(path, module, named);
        }
        for (name, child) in &module.children {
            path.push(name.clone());
            self.module(path, child);
            path.pop();
        }
    }

    fn named(&mut self, path: &ModulePath, module: &Module, named: &Named) {
        let Some(target) = self.resolve(path, &named.segments, 0) else { return };
        if target.is_empty() && !path.is_empty() && !named.calls_macro {
            let sentence = format!("`{}` uses what the crate's root declares", path.join("::"));
            self.breach(&module.file, named.line, sentence);
            return;
        }
        let shared = path.iter().zip(&target).take_while(|(one, other)| one == other).count();
        let (Some(from), Some(to)) = (path.get(shared), target.get(shared)) else { return };
        if shared == 0 {
            self.on_top(module, named.line, from, to);
        }
        let place = (module.file.clone(), named.line);
        let siblings = self.uses.entry(path.get(..shared).unwrap_or_default().to_vec()).or_default();
        siblings.entry((from.clone(), to.clone())).or_insert(place);
    }

    fn on_top(&mut self, module: &Module, line: usize, from: &str, to: &str) {
        let (Some(above), Some(below)) = (self.floors.of(from), self.floors.of(to)) else { return };
        if above == below {
            self.breach(&module.file, line, format!("`{from}` uses `{to}`, which stands on the same floor"));
        } else if above > below {
            self.breach(&module.file, line, format!("`{from}` uses `{to}`, which stands on a higher floor"));
        }
    }

    /// The module that a path leads to, from the module at `path`; nothing where it leaves the crate. What a module passes
    /// on from another is the other's.
    fn resolve(&self, path: &ModulePath, segments: &[String], depth: usize) -> Option<ModulePath> {
        let mut at = path.clone();
        let mut rest = segments;
        while let [first, more @ ..] = rest {
            match first.as_str() {
                "crate" => at.clear(),
                "self" => {}
                "super" => {
                    at.pop()?;
                }
                _ => break,
            }
            rest = more;
        }
        if std::ptr::eq(rest, segments) && self.find(&at)?.child(segments.first()?).is_none() {
            let imported = self.find(&at)?.imported.get(segments.first()?)?;
            return if depth < 8 { self.resolve(&at, imported, depth + 1) } else { None };
        }
        while let [name, more @ ..] = rest {
            let module = self.find(&at)?;
            if module.child(name).is_some() {
                at.push(name.clone());
            } else if let Some(imported) = module.imported.get(name).filter(|_| depth < 8 && at != *path) {
                return Some(self.resolve(&at, imported, depth + 1).unwrap_or(at));
            } else {
                break;
            }
            rest = more;
        }
        Some(at)
    }

    fn find(&self, path: &[String]) -> Option<&Module> {
        path.iter().try_fold(self.root, |module, name| module.child(name))
    }

    /// Siblings that use one another in a circle. On top the floors say more, so circles are looked for further down.
    fn circles(&mut self) {
        let uses = std::mem::take(&mut self.uses);
        for (parent, siblings) in uses.iter().filter(|(parent, _)| !parent.is_empty()) {
            for ((from, to), (file, line)) in siblings {
                if let Some(way) = way_back(siblings, to, from) {
                    let room = parent.join("::");
                    let sentence = format!("in `{room}`, `{from}` uses `{to}`, which uses {way}: a circle");
                    self.breach(file, *line, sentence);
                }
            }
        }
    }

    fn breach(&mut self, file: &Path, line: usize, sentence: String) {
        self.breaches.insert(Breach { file: file.to_owned(), line, sentence });
    }
}

/// How `from` leads to `to` along uses, in words.
fn way_back(uses: &BTreeMap<(String, String), (PathBuf, usize)>, from: &str, to: &str) -> Option<String> {
    let mut reached: BTreeMap<&str, Vec<&str>> = BTreeMap::from([(from, Vec::new())]);
    let mut open = vec![from];
    while let Some(at) = open.pop() {
        if at == to {
            let names: Vec<String> = reached.get(at)?.iter().map(|name| format!("`{name}`")).collect();
            return Some(names.join(", which uses "));
        }
        for (_, next) in uses.keys().filter(|(user, _)| user == at) {
            if !reached.contains_key(next.as_str()) {
                let mut way = reached.get(at).cloned().unwrap_or_default();
                way.push(next);
                reached.insert(next, way);
                open.push(next);
            }
        }
    }
    None
}

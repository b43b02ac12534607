//! The outermost level of a dump: a List, whose items are read one by one, or a single object.

use std::collections::HashSet;
use std::io::Read;

use gpupool_core::one_line::one_line;

use super::window::{AString, AnyValue, Borrowing, Window};
use super::{DumpError, Each, Header, Shape};

/// Where the JSON text comes from.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) enum Origin {
    Json,
    /// YAML has no closing bracket: a cut file can look whole. kubectl writes a List's kind behind its items, so
    /// that a missing kind tells that the file was cut.
    Yaml,
}

struct Item<S>(S);

impl<S: Shape> Borrowing for Item<S> {
    type Of<'a> = S::Item<'a>;
}

/// What the outermost level said beside its items.
#[derive(Default)]
struct Outer {
    seen: HashSet<String>,
    kind: Option<String>,
    api_version: Option<String>,
    listed: bool,
    /// All keys and values but `items`, for the case that this is a single object.
    members: Vec<String>,
}

/// Reads a whole document; the window stands before its opening brace.
pub(super) fn read<S: Shape>(
    window: &mut Window<impl Read>,
    origin: Origin,
    each: &mut Each<'_, S>,
) -> Result<(), DumpError> {
    let mut outer = Outer::default();
    window.take(b"{")?;
    while window.peek()? != Some(b'}') || !outer.seen.is_empty() {
        let key = window.value::<AString, _>(|key| Ok(key.0.into_owned()))?;
        if !outer.seen.insert(key.clone()) {
            return Err(window.error(format!("the key \"{}\" stands there twice", one_line(&key, 60))));
        }
        window.take(b":")?;
        if key == "items" {
            outer.listed = true;
            outer.members.clear();
            items::<S>(window, each)?;
        } else {
            member(window, &mut outer, &key)?;
        }
        if window.take(b",}")? == b'}' {
            return finish::<S>(window, &outer, origin, each);
        }
    }
    window.take(b"}")?;
    finish::<S>(window, &outer, origin, each)
}

fn member(window: &mut Window<impl Read>, outer: &mut Outer, key: &str) -> Result<(), DumpError> {
    let text = |raw: &str| {
        serde_json::from_str(raw).map_err(|_| format!("{key} is no string: {}", one_line(raw, 40)))
    };
    window.value::<AnyValue, _>(|raw| {
        match key {
            "kind" => outer.kind = Some(text(raw.get())?),
            "apiVersion" => outer.api_version = Some(text(raw.get())?),
            _ => {}
        }
        if !outer.listed {
            let key = serde_json::to_string(key).map_err(|error| error.to_string())?;
            outer.members.push(format!("{key}:{}", raw.get()));
        }
        Ok(())
    })
}

fn items<S: Shape>(window: &mut Window<impl Read>, each: &mut Each<'_, S>) -> Result<(), DumpError> {
    match window.peek()? {
        // How an empty list of an older API server reads.
        Some(b'n') => window.value::<AnyValue, _>(|raw| match raw.get() {
            "null" => Ok(()),
            _ => Err("items is no array".to_owned()),
        }),
        Some(b'[') => {
            window.take(b"[")?;
            let mut count = 0_usize;
            while window.peek()? != Some(b']') || count > 0 {
                count += 1;
                object_ahead::<S>(window, count)?;
                window.value::<Item<S>, _>(|item| {
                    check::<S>(S::header(&item)).map_err(|what| format!("item {count} {what}"))?;
                    each(item).map_err(|what| format!("item {count}: {what}"))
                })?;
                if window.take(b",]")? == b']' {
                    return Ok(());
                }
            }
            window.take(b"]").map(drop)
        }
        Some(_) => Err(window.error("items is no array".to_owned())),
        None => Err(window.truncated()),
    }
}

fn object_ahead<S: Shape>(window: &mut Window<impl Read>, count: usize) -> Result<(), DumpError> {
    match window.peek()? {
        Some(b'{') => Ok(()),
        Some(_) => Err(window.error(format!("item {count} is no object, so no {}", S::KIND))),
        None => Err(window.truncated()),
    }
}

/// Refuses an object of another kind, and one of the same kind in another group.
fn check<S: Shape>(header: Header<'_>) -> Result<(), String> {
    let kind = header.kind.unwrap_or(S::KIND);
    let api_version = header.api_version.unwrap_or("v1");
    if kind == S::KIND && api_version == "v1" {
        return Ok(());
    }
    Err(format!("is a {} of {}, not a {} of v1", one_line(kind, 60), one_line(api_version, 60), S::KIND))
}

fn finish<S: Shape>(
    window: &mut Window<impl Read>,
    outer: &Outer,
    origin: Origin,
    each: &mut Each<'_, S>,
) -> Result<(), DumpError> {
    if window.peek()?.is_some() {
        return Err(
            window.error("text behind the end: one List or one object is expected, not several".to_owned())
        );
    }
    let header = Header { kind: outer.kind.as_deref(), api_version: outer.api_version.as_deref() };
    let kind = S::KIND;
    match (outer.listed, header.kind) {
        (true, None) if origin == Origin::Yaml => Err(DumpError::Content(
            "has items but no kind: the dump is incomplete, or its kind (List) was removed".to_owned(),
        )),
        (true, None | Some("List")) => versioned(header),
        (true, Some(list)) if list.strip_suffix("List") == Some(kind) => versioned(header),
        (false, Some(list)) if list == "List" || list.strip_suffix("List") == Some(kind) => {
            Err(DumpError::Content(format!("is a {list} without items: the dump is incomplete")))
        }
        (false, Some(single)) if single == kind => {
            check::<S>(header).map_err(DumpError::Content)?;
            let text = format!("{{{}}}", outer.members.join(","));
            let item =
                serde_json::from_str(&text).map_err(|error| DumpError::Content(shape_fault(&error)))?;
            each(item).map_err(DumpError::Content)
        }
        (_, Some(other)) => Err(DumpError::Content(format!(
            "is a {}; expected a List of {kind}s or one {kind}",
            one_line(other, 60)
        ))),
        (false, None) => Err(DumpError::Content(format!(
            "has neither kind nor items; expected a List of {kind}s or one {kind}"
        ))),
    }
}

fn versioned(header: Header<'_>) -> Result<(), DumpError> {
    match header.api_version {
        None | Some("v1") => Ok(()),
        Some(other) => Err(DumpError::Content(format!("is a list of {}, not of v1", one_line(other, 60)))),
    }
}

fn shape_fault(error: &serde_json::Error) -> String {
    let text = error.to_string();
    one_line(text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what), 200)
}

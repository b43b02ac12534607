//! The outermost level of a dump: a List, whose items are read one by one, or a single object.

use std::collections::HashSet;
use std::io::Read;

use gpupool_core::one_line::one_line;

use super::window::{Borrowed, JsonString, RawJson, Window};
use super::{ForEach, Header, ObjectPart};
use crate::error::{DocumentFault, DumpError, OtherKind, TextFault};

/// Where the JSON text comes from.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) enum Origin {
    Json,
    /// YAML has no closing bracket: a cut file can look whole. kubectl writes a List's kind behind its items, so
    /// that a missing kind tells that the file was cut.
    Yaml,
}

struct Item<P>(P);

impl<P: ObjectPart> Borrowed for Item<P> {
    type Value<'a> = P::Part<'a>;
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
pub(super) fn read<P: ObjectPart>(
    window: &mut Window<impl Read>,
    origin: Origin,
    each: &mut ForEach<'_, P>,
) -> Result<(), DumpError> {
    let mut outer = Outer::default();
    window.take(b"{")?;
    while window.peek()? != Some(b'}') || !outer.seen.is_empty() {
        let key = window.value::<JsonString, _>(|key| Ok(key.0.into_owned()))?;
        if !outer.seen.insert(key.clone()) {
            return Err(window.error(TextFault::RepeatedKey(one_line(&key, 60))));
        }
        window.take(b":")?;
        if key == "items" {
            outer.listed = true;
            outer.members.clear();
            items::<P>(window, each)?;
        } else {
            member(window, &mut outer, &key)?;
        }
        if window.take(b",}")? == b'}' {
            return finish::<P>(window, &outer, origin, each);
        }
    }
    window.take(b"}")?;
    finish::<P>(window, &outer, origin, each)
}

fn member(window: &mut Window<impl Read>, outer: &mut Outer, key: &str) -> Result<(), DumpError> {
    let text = |raw: &str| {
        serde_json::from_str(raw)
            .map_err(|_| TextFault::NotAString { key: key.to_owned(), found: one_line(raw, 40) })
    };
    window.value::<RawJson, _>(|raw| {
        match key {
            "kind" => outer.kind = Some(text(raw.get())?),
            "apiVersion" => outer.api_version = Some(text(raw.get())?),
            _ => {}
        }
        if !outer.listed {
            let key = serde_json::to_string(key).map_err(|error| TextFault::NotJson(error.to_string()))?;
            outer.members.push(format!("{key}:{}", raw.get()));
        }
        Ok(())
    })
}

fn items<P: ObjectPart>(window: &mut Window<impl Read>, each: &mut ForEach<'_, P>) -> Result<(), DumpError> {
    match window.peek()? {
        // How an empty list of an older API server reads.
        Some(b'n') => window.value::<RawJson, _>(|raw| match raw.get() {
            "null" => Ok(()),
            _ => Err(TextFault::ItemsNotAnArray),
        }),
        Some(b'[') => {
            window.take(b"[")?;
            let mut count = 0_usize;
            while window.peek()? != Some(b']') || count > 0 {
                count += 1;
                let index = count;
                object_ahead::<P>(window, index)?;
                window.value::<Item<P>, _>(|item| {
                    check::<P>(P::header(&item)).map_err(|is| TextFault::ItemOfAnotherKind { index, is })?;
                    each(item).map_err(|why| TextFault::Item { index, why })
                })?;
                if window.take(b",]")? == b']' {
                    return Ok(());
                }
            }
            window.take(b"]").map(drop)
        }
        Some(_) => Err(window.error(TextFault::ItemsNotAnArray)),
        None => Err(window.truncated()),
    }
}

fn object_ahead<P: ObjectPart>(window: &mut Window<impl Read>, index: usize) -> Result<(), DumpError> {
    match window.peek()? {
        Some(b'{') => Ok(()),
        Some(_) => Err(window.error(TextFault::ItemNotAnObject { index, kind: P::KIND })),
        None => Err(window.truncated()),
    }
}

/// Refuses an object of another kind, and one of the same kind in another group.
fn check<P: ObjectPart>(header: Header<'_>) -> Result<(), OtherKind> {
    let kind = header.kind.unwrap_or(P::KIND);
    let api_version = header.api_version.unwrap_or("v1");
    if kind == P::KIND && api_version == "v1" {
        return Ok(());
    }
    Err(OtherKind { kind: one_line(kind, 60), api_version: one_line(api_version, 60), expected: P::KIND })
}

fn finish<P: ObjectPart>(
    window: &mut Window<impl Read>,
    outer: &Outer,
    origin: Origin,
    each: &mut ForEach<'_, P>,
) -> Result<(), DumpError> {
    if window.peek()?.is_some() {
        return Err(window.error(TextFault::TextBehindTheEnd));
    }
    let header = Header { kind: outer.kind.as_deref(), api_version: outer.api_version.as_deref() };
    let kind = P::KIND;
    match (outer.listed, header.kind) {
        (true, None) if origin == Origin::Yaml => Err(DocumentFault::ListWithoutKind.into()),
        (true, None | Some("List")) => versioned(header),
        (true, Some(list)) if list.strip_suffix("List") == Some(kind) => versioned(header),
        (false, Some(list)) if list == "List" || list.strip_suffix("List") == Some(kind) => {
            Err(DocumentFault::ListWithoutItems(list.to_owned()).into())
        }
        (false, Some(single)) if single == kind => {
            check::<P>(header).map_err(DocumentFault::from)?;
            let text = format!("{{{}}}", outer.members.join(","));
            let item = serde_json::from_str(&text).map_err(|error| unexpected(&error))?;
            each(item).map_err(|why| DocumentFault::from(why).into())
        }
        (_, Some(other)) => {
            Err(DocumentFault::OtherDocument { found: one_line(other, 60), expected: kind }.into())
        }
        (false, None) => Err(DocumentFault::NoObject(kind).into()),
    }
}

fn versioned(header: Header<'_>) -> Result<(), DumpError> {
    match header.api_version {
        None | Some("v1") => Ok(()),
        Some(other) => Err(DocumentFault::ListOfAnotherVersion(one_line(other, 60)).into()),
    }
}

fn unexpected(error: &serde_json::Error) -> DocumentFault {
    let text = error.to_string();
    // serde_json adds a place, which counts from the start of this copy of the object.
    let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
    DocumentFault::Unexpected(one_line(what, 200))
}

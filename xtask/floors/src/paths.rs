//! Paths in a stream of tokens, wherever they stand: in `use` lines, in code, inside macros.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A path that begins with `crate`, `self` or `super`, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) segments: Vec<String>,
    /// From 1.
    pub(crate) line: usize,
    /// A macro is called or imported by that path: `crate::name!`.
    pub(crate) calls_macro: bool,
}

/// Adds every path of `tokens` to `found`.
pub(crate) fn collect(tokens: TokenStream, found: &mut Vec<Named>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut place = 0;
    while let Some(token) = tokens.get(place) {
        let after_path = place.checked_sub(1).is_some_and(|before| is_punct(tokens.get(before), ':'));
        match token {
            TokenTree::Ident(ident) if !after_path && begins_path(&ident.to_string()) => {
                place = path(&tokens, place, &[], found);
            }
            TokenTree::Group(group) => {
                collect(group.stream(), found);
                place += 1;
            }
            _ => place += 1,
        }
    }
}

fn begins_path(ident: &str) -> bool {
    ["crate", "self", "super"].contains(&ident)
}

fn is_punct(token: Option<&TokenTree>, what: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == what)
}

/// Reads the path that goes on at `place` after `prefix`; gives the place behind it. A lone `self` is no path.
fn path(tokens: &[TokenTree], mut place: usize, prefix: &[String], found: &mut Vec<Named>) -> usize {
    let mut segments = prefix.to_vec();
    let line = tokens.get(place).map_or(0, |token| token.span().start().line);
    while let Some(TokenTree::Ident(ident)) = tokens.get(place) {
        segments.push(ident.to_string());
        place += 1;
        if !(is_punct(tokens.get(place), ':') && is_punct(tokens.get(place + 1), ':')) {
            break;
        }
        match tokens.get(place + 2) {
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                branches(group.stream(), &segments, found);
                return place + 3;
            }
            Some(TokenTree::Ident(_)) => place += 2,
            _ => break,
        }
    }
    if segments.len() > 1 {
        let calls_macro = is_punct(tokens.get(place), '!') && !is_punct(tokens.get(place + 1), '=');
        found.push(Named { segments, line, calls_macro });
    }
    place
}

/// The branches of `a::{b, c::{d}}`, each as a path of its own.
fn branches(tokens: TokenStream, prefix: &[String], found: &mut Vec<Named>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for branch in tokens.split(|token| is_punct(Some(token), ',')) {
        if !branch.is_empty() {
            path(branch, 0, prefix, found);
        }
    }
}

//! Lists of a cluster's objects, as the API server writes them, for readers that know the form themselves.
//!
//! They come in pages of bounded size, each a whole list of its own: a cluster of any size takes little memory.

use http::Request;
use serde::Deserialize;

use super::request::bounded;

/// Objects in one page.
const PAGE: usize = 500;

/// What can be listed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ListedKind {
    /// All nodes.
    Nodes,
    /// All pods of all namespaces.
    Pods,
}

impl ListedKind {
    fn plural(self) -> &'static str {
        match self {
            Self::Nodes => "nodes",
            Self::Pods => "pods",
        }
    }
}

/// Why a cluster could not be listed.
#[derive(Debug, thiserror::Error)]
pub enum ListError<E> {
    /// The API server did not answer with a list.
    #[error("cannot list the {what} of the cluster: {source}")]
    Read {
        /// What was asked for.
        what: &'static str,
        /// What came instead.
        source: kube::Error,
    },
    /// Its answer is no list.
    #[error("the API server's list of {what} cannot be read: {source}")]
    Form {
        /// What was asked for.
        what: &'static str,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// Whoever reads the pages does not go on.
    #[error(transparent)]
    Reader(E),
}

/// What is needed of a page to ask for the next.
#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    metadata: PageMetadata,
}

#[derive(Default, Deserialize)]
struct PageMetadata {
    #[serde(default, rename = "continue")]
    more: String,
}

/// Gives every page of a list to `read`, in order, as JSON.
pub async fn list<E>(
    client: &kube::Client,
    listed: ListedKind,
    mut read: impl FnMut(&str) -> Result<(), E>,
) -> Result<(), ListError<E>> {
    let what = listed.plural();
    let mut more = String::new();
    loop {
        let request = Request::get(path(what, &more)).body(Vec::new());
        let request =
            request.map_err(|error| ListError::Read { what, source: kube::Error::HttpError(error) })?;
        let text = bounded(client.request_text(request)).await;
        let text = text.map_err(|source| ListError::Read { what, source })?;
        read(&text).map_err(ListError::Reader)?;
        let page: Page = serde_json::from_str(&text).map_err(|source| ListError::Form { what, source })?;
        if page.metadata.more.is_empty() {
            return Ok(());
        }
        more = page.metadata.more;
    }
}

/// The token is the server's own text, and may hold anything.
fn path(what: &str, more: &str) -> String {
    let mut path = format!("/api/v1/{what}?limit={PAGE}");
    if !more.is_empty() {
        path.push_str("&continue=");
        for byte in more.bytes() {
            if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
                path.push(char::from(byte));
            } else {
                path.extend(['%', hex(byte >> 4), hex(byte & 15)]);
            }
        }
    }
    path
}

fn hex(digit: u8) -> char {
    char::from(if digit < 10 { b'0' + digit } else { b'A' + digit - 10 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_escaped_whatever_it_holds() {
        assert_eq!(path("nodes", ""), "/api/v1/nodes?limit=500");
        assert_eq!(path("pods", "a+/=&é"), "/api/v1/pods?limit=500&continue=a%2B%2F%3D%26%C3%A9");
    }
}

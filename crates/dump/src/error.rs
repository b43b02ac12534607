//! Why a dump cannot be read, in words that the user can act on. The file's name is left to the caller.

use std::io;

use gpupool_core::quantity::QuantityError;

/// Why a dump cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// The file is not there or may not be read.
    #[error("cannot be opened: {0}")]
    Open(#[source] io::Error),
    /// A directory, a broken disk, a closed pipe.
    #[error("cannot be read: {0}")]
    Read(#[source] io::Error),
    /// Nothing but blanks.
    #[error("is empty; save a dump with `kubectl get nodes -o json`")]
    Empty,
    /// The items of a list without the list.
    #[error("is a bare array; wrap it as {{\"apiVersion\":\"v1\",\"kind\":\"List\",\"items\":[…]}} of {0}s")]
    BareArray(&'static str),
    /// Another encoding, such as that of a shell that writes UTF-16, or no text at all.
    #[error("line {line}: is not UTF-8 text; save the dump as UTF-8")]
    NotUtf8 {
        /// The line, counted from 1.
        line: usize,
    },
    /// The text ends in the middle.
    #[error("ends too early, at line {line} column {column}: the dump is incomplete; save it again")]
    Truncated {
        /// The line, counted from 1.
        line: usize,
        /// The column in bytes, counted from 1.
        column: usize,
    },
    /// Something is wrong at one place.
    #[error("line {line} column {column}: {fault}")]
    At {
        /// The line, counted from 1.
        line: usize,
        /// The column in bytes, counted from 1.
        column: usize,
        /// What is wrong there.
        #[source]
        fault: TextFault,
    },
    /// Begins like YAML and is none, in the parser's words.
    #[error("is neither JSON nor YAML: {0}")]
    Yaml(String),
    /// Well-formed, but not what was asked for.
    #[error(transparent)]
    Document(#[from] DocumentFault),
}

/// What is wrong at one place of a dump.
#[derive(Debug, thiserror::Error)]
pub enum TextFault {
    /// In the parser's words.
    #[error("not JSON: {0}")]
    NotJson(String),
    /// JSON, but not what an object of this kind holds there; in the parser's words.
    #[error("{0}")]
    Unexpected(String),
    /// The same key twice on the outermost level.
    #[error("the key \"{0}\" stands there twice")]
    RepeatedKey(String),
    /// `kind` or `apiVersion` of the outermost level.
    #[error("{key} is no string: {found}")]
    NotAString {
        /// Which of the two.
        key: String,
        /// The beginning of its value.
        found: String,
    },
    /// `items` holds something else.
    #[error("items is no array")]
    ItemsNotAnArray,
    /// An item that cannot be of the kind that is read.
    #[error("item {index} is no object, so no {kind}")]
    ItemNotAnObject {
        /// Which item, counted from 1.
        index: usize,
        /// The kind that is read.
        kind: &'static str,
    },
    /// An item that says that it is of another kind.
    #[error("item {index} {is}")]
    ItemOfAnotherKind {
        /// Which item, counted from 1.
        index: usize,
        /// What it says.
        #[source]
        is: OtherKind,
    },
    /// An item that cannot be used.
    #[error("item {index}: {why}")]
    Item {
        /// Which item, counted from 1.
        index: usize,
        /// Why not.
        #[source]
        why: ObjectError,
    },
    /// Something behind the document.
    #[error("text behind the end: one List or one object is expected, not several")]
    TextBehindTheEnd,
}

/// Why a well-formed document is not what was asked for.
#[derive(Debug, thiserror::Error)]
pub enum DocumentFault {
    /// A YAML list whose kind, which kubectl writes last, is missing.
    #[error("has items but no kind: the dump is incomplete, or its kind (List) was removed")]
    ListWithoutKind,
    /// A list's kind, without a list.
    #[error("is a {0} without items: the dump is incomplete")]
    ListWithoutItems(String),
    /// A list of an API version that is not read.
    #[error("is a list of {0}, not of v1")]
    ListOfAnotherVersion(String),
    /// A single object of the same kind in another group.
    #[error(transparent)]
    OtherKind(#[from] OtherKind),
    /// Something else altogether.
    #[error("is a {found}; expected a List of {expected}s or one {expected}")]
    OtherDocument {
        /// The kind that it states.
        found: String,
        /// The kind that is read.
        expected: &'static str,
    },
    /// No Kubernetes object at all.
    #[error("has neither kind nor items; expected a List of {0}s or one {0}")]
    NoObject(&'static str),
    /// More than one YAML document.
    #[error("holds several YAML documents; one List or one object is expected")]
    SeveralDocuments,
    /// A single object that does not hold what one of its kind holds; in the parser's words.
    #[error("{0}")]
    Unexpected(String),
    /// A single object that cannot be used.
    #[error(transparent)]
    Object(#[from] ObjectError),
}

/// An object of another kind than the one that is read, or of the same kind in another group.
#[derive(Debug, thiserror::Error)]
#[error("is a {kind} of {api_version}, not a {expected} of v1")]
pub struct OtherKind {
    /// The kind that the object states.
    pub kind: String,
    /// The API version that it states.
    pub api_version: String,
    /// The kind that is read.
    pub expected: &'static str,
}

/// Why an object cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// Without a name it cannot be told from others.
    #[error("a {0} without a name")]
    Nameless(&'static str),
    /// One of its quantities cannot be read.
    #[error("{kind} {name}: {why}")]
    Quantity {
        /// What kind of object.
        kind: &'static str,
        /// Its name, shortened where it is too long.
        name: String,
        /// Which quantity, and why.
        #[source]
        why: ResourceError,
    },
}

/// Why the quantity of a resource cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{resource}: {fault}")]
pub struct ResourceError {
    /// The resource's name, shortened where it is too long.
    pub resource: String,
    /// What is wrong with its quantity.
    #[source]
    pub fault: AmountFault,
}

/// What is wrong with a quantity.
#[derive(Debug, thiserror::Error)]
pub enum AmountFault {
    /// It is a string or a number, but no quantity.
    #[error(transparent)]
    Quantity(#[from] QuantityError),
    /// It is a string with a broken escape.
    #[error(transparent)]
    Text(#[from] serde_json::Error),
    /// It is neither a string nor a number.
    #[error("{0} is no quantity: write a number such as \"4\"")]
    NeitherStringNorNumber(String),
}

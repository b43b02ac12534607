//! What the environment says about the simulated machine.

use std::path::PathBuf;

use crate::{
    error::Error,
    layout::MAX_CARDS,
    model::{MODELS, Model},
};

/// Where the state lies and, should it have to be made, with what cards.
#[derive(Debug, Clone)]
pub struct MachineSettings {
    /// The state file.
    pub path: PathBuf,
    /// Whether everybody on the machine may use it, as with real cards, or its maker only.
    pub open_to_all: bool,
    /// The models of the cards, in the order of their indices; used only when the file is made.
    pub cards: Vec<&'static Model>,
}

impl MachineSettings {
    /// Reads `SIMGPU_STATE` (default `/dev/shm/simgpu-<uid>.state`, for its maker only) and `SIMGPU_CARDS` (default
    /// one card of the default model).
    pub fn from_env() -> Result<Self, Error> {
        let cards = match std::env::var("SIMGPU_CARDS") {
            Ok(text) if !text.trim().is_empty() => parse_cards(&text)?,
            _ => parse_cards("1")?,
        };
        let explicit = std::env::var_os("SIMGPU_STATE").filter(|path| !path.is_empty());
        Ok(match explicit {
            Some(path) => Self { path: path.into(), open_to_all: true, cards },
            None => Self { path: default_path(), open_to_all: false, cards },
        })
    }

    /// The state in `path`, made with the cards that `cards` describes in the form of `SIMGPU_CARDS`.
    pub fn new(path: impl Into<PathBuf>, cards: &str) -> Result<Self, Error> {
        Ok(Self { path: path.into(), open_to_all: true, cards: parse_cards(cards)? })
    }
}

fn default_path() -> PathBuf {
    // SAFETY: geteuid has no conditions.
    let uid = unsafe { libc::geteuid() };
    format!("/dev/shm/simgpu-{uid}.state").into()
}

/// `2`, `2xA100-80GB`, `1xH100-80GB,1xT4`, `T4`.
fn parse_cards(text: &str) -> Result<Vec<&'static Model>, Error> {
    let mut cards = Vec::new();
    for part in text.split(',').map(str::trim) {
        let wrong = |why: String| Error::Cards { text: part.to_owned(), why };
        let (count, key) = match part.split_once(['x', 'X']) {
            Some((count, key)) => (count.trim(), key.trim()),
            None if part.bytes().all(|byte| byte.is_ascii_digit()) => (part, MODELS[0].key),
            None => ("1", part),
        };
        let count: usize =
            count.parse().map_err(|_| wrong("the part before the x must be a number".into()))?;
        let model = Model::by_key(key).ok_or_else(|| {
            let known: Vec<_> = MODELS.iter().map(|model| model.key).collect();
            wrong(format!("the known models are {}", known.join(", ")))
        })?;
        if count == 0 || cards.len() + count > MAX_CARDS {
            return Err(wrong(format!("a machine has 1 to {MAX_CARDS} cards")));
        }
        cards.extend(std::iter::repeat_n(model, count));
    }
    Ok(cards)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str) -> Vec<&'static str> {
        parse_cards(text).unwrap().iter().map(|model| model.key).collect()
    }

    #[test]
    fn a_bare_number_means_cards_of_the_default_model() {
        assert_eq!(keys("2"), ["A100-80GB", "A100-80GB"]);
    }

    #[test]
    fn models_are_named_with_or_without_a_count() {
        assert_eq!(keys("2xA100-40GB, T4,1xsim-4gb"), ["A100-40GB", "A100-40GB", "T4", "Sim-4GB"]);
    }

    #[test]
    fn nonsense_is_refused_with_the_part_that_is_wrong() {
        for (text, part) in
            [("0", "0"), ("1,2xB9000", "2xB9000"), ("", ""), ("T4,yxT4", "yxT4"), ("33", "33")]
        {
            let message = parse_cards(text).unwrap_err().to_string();
            assert!(message.contains(&format!("`{part}`")), "{message}");
        }
    }
}

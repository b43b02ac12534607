//! What a context takes of each card, kept in a file beside the journal by card and driver: measuring it makes a context, and
//! a card whose memory is shared out has no room for one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tracing::warn;

/// Form of the file. Another one counts as no file.
const VERSION: u32 = 1;

/// What is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Content {
    version: u32,
    /// NVML's name of the driver's version: another driver takes another amount.
    driver: String,
    /// Bytes, by the card's UUID.
    contexts: BTreeMap<String, u64>,
}

/// The file's content and its path.
#[derive(Debug)]
pub struct ContextFigures {
    path: PathBuf,
    content: Content,
}

impl ContextFigures {
    /// Reads the file. One that is not there or cannot be understood is as good as none: everything is measured anew.
    pub fn read(path: &Path) -> Self {
        let content = match std::fs::read(path) {
            Ok(text) => {
                serde_json::from_slice(&text).ok().filter(|content: &Content| content.version == VERSION)
            }
            Err(missing) if missing.kind() == std::io::ErrorKind::NotFound => Some(Content::default()),
            Err(_) => None,
        };
        if content.is_none() {
            warn!("{} cannot be read: what a context takes of each card is measured anew", path.display());
        }
        Self { path: path.to_owned(), content: content.unwrap_or_default() }
    }

    /// The driver that the figures are of.
    pub(super) fn driver(&self) -> &str {
        &self.content.driver
    }

    /// The cards that need not be measured while that driver is there.
    pub(super) fn cards(&self) -> impl Iterator<Item = &str> {
        self.content.contexts.keys().map(String::as_str)
    }

    /// Gives cards what was not measured and keeps what was. That it cannot be kept is said; the next agent measures again.
    pub(super) fn complete<'a>(
        &mut self,
        driver: &str,
        cards: impl Iterator<Item = (&'a str, &'a mut Option<u64>)>,
    ) {
        let mut content = Content { version: VERSION, driver: driver.to_owned(), contexts: BTreeMap::new() };
        if content.driver == self.content.driver {
            content.contexts.clone_from(&self.content.contexts);
        }
        for (card, bytes) in cards {
            match *bytes {
                Some(measured) => drop(content.contexts.insert(card.to_owned(), measured)),
                None => *bytes = content.contexts.get(card).copied(),
            }
        }
        if content == self.content {
            return;
        }
        let next = self.path.with_extension("contexts.next");
        let written = serde_json::to_vec(&content)
            .map_err(std::io::Error::from)
            .and_then(|text| std::fs::write(&next, text))
            .and_then(|()| std::fs::rename(&next, &self.path));
        if let Err(failure) = written {
            warn!("cannot write {}: {failure}; the next agent measures again", self.path.display());
        }
        self.content = content;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(path: &Path, driver: &str, mut contexts: [Option<u64>; 2]) -> [Option<u64>; 2] {
        let cards = ["GPU-0", "GPU-1"].into_iter().zip(&mut contexts);
        ContextFigures::read(path).complete(driver, cards);
        contexts
    }

    #[test]
    fn a_figure_holds_for_its_card_until_the_driver_is_another() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("agent.contexts");
        assert_eq!(completed(&path, "570.1", [Some(7), None]), [Some(7), None]);
        let figures = ContextFigures::read(&path);
        assert_eq!((figures.driver(), figures.cards().collect::<Vec<_>>()), ("570.1", vec!["GPU-0"]));
        assert_eq!(completed(&path, "570.1", [None, Some(8)]), [Some(7), Some(8)]);
        assert_eq!(completed(&path, "570.1", [None, None]), [Some(7), Some(8)]);
        assert_eq!(completed(&path, "580.2", [None, Some(9)]), [None, Some(9)]);
        assert_eq!(completed(&path, "570.1", [None, None]), [None, None], "that is another driver again");
    }

    #[test]
    fn a_file_that_cannot_be_understood_is_as_good_as_none() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("agent.contexts");
        for text in [
            "",
            "{",
            r#"{"version":2,"driver":"570.1","contexts":{"GPU-0":1}}"#,
            r#"{"version":1,"later":1}"#,
        ] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(ContextFigures::read(&path).cards().count(), 0, "{text}");
        }
        assert_eq!(completed(&path, "570.1", [Some(7), None]), [Some(7), None]);
        assert_eq!(completed(&path, "570.1", [None, None]), [Some(7), None]);
    }
}

//! Which existing name somebody may have meant.

use super::local_name;

/// How far a candidate is from what was asked; the smaller, the nearer.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Distance {
    /// The same but for case and separators: so many characters longer or shorter.
    Respelled(usize),
    /// All words of the query in their order, with this many characters between them.
    Shortened(usize),
    /// So many characters mistyped.
    Mistyped(usize),
}

/// The at most `most` candidates nearest to a name, nearest first; none that is too far to be meant.
///
/// A name with words left out (`TU104GL_T4` for `TU104GL_TESLA_T4`) is nearer than one with other letters
/// (`TU104GL_T4G`). Domains are not compared; candidates come back as they were given.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>, most: usize) -> Vec<&'a str> {
    let query = Query::of(name);
    let mut found: Vec<(Distance, &str)> = candidates
        .into_iter()
        .filter_map(|candidate| {
            Some((query.distance(local_name(candidate).unwrap_or(candidate))?, candidate))
        })
        .collect();
    found.sort_unstable();
    found.dedup_by_key(|(_, candidate)| *candidate);
    found.into_iter().take(most).map(|(_, candidate)| candidate).collect()
}

/// Longer names than any resource may have are not compared: it would take long and help nobody.
const LONGEST: usize = 128;

struct Query {
    upper: String,
    letters: String,
    words: Vec<String>,
}

impl Query {
    fn of(name: &str) -> Self {
        let name = local_name(name).unwrap_or(name);
        let upper: String = name.chars().take(LONGEST + 1).collect::<String>().to_uppercase();
        Self { letters: letters(&upper), words: words(&upper).map(str::to_owned).collect(), upper }
    }

    fn distance(&self, candidate: &str) -> Option<Distance> {
        if self.letters.is_empty() || self.upper.len() > LONGEST || candidate.len() > LONGEST {
            return None;
        }
        let upper = candidate.to_uppercase();
        if letters(&upper) == self.letters {
            return Some(Distance::Respelled(upper.len().abs_diff(self.upper.len())));
        }
        let mut rest = words(&upper);
        if self.words.iter().all(|word| rest.any(|other| other == word)) {
            return Some(Distance::Shortened(upper.len().abs_diff(self.upper.len())));
        }
        let mistyped = strsim::osa_distance(&upper, &self.upper);
        (mistyped <= 1 + self.upper.len() / 5).then_some(Distance::Mistyped(mistyped))
    }
}

fn letters(upper: &str) -> String {
    upper.chars().filter(char::is_ascii_alphanumeric).collect()
}

fn words(upper: &str) -> impl Iterator<Item = &str> {
    upper.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty())
}

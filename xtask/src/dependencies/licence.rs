//! SPDX licence expressions, as packages have them.

/// Whether what an expression asks for can be met with these licences alone. `/` stands for OR, as older packages write
/// it.
pub(super) fn is_met(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut reader = Reader { words: &words, allowed };
    reader.any_of() && reader.words.is_empty()
}

/// Reads an expression from the front. `AND` binds more tightly than `OR`.
struct Reader<'a> {
    words: &'a [&'a str],
    allowed: &'a [String],
}

impl Reader<'_> {
    fn any_of(&mut self) -> bool {
        let mut met = self.all_of();
        while self.take("OR") {
            met |= self.all_of();
        }
        met
    }

    fn all_of(&mut self) -> bool {
        let mut met = self.one();
        while self.take("AND") {
            met &= self.one();
        }
        met
    }

    fn one(&mut self) -> bool {
        if self.take("(") {
            let met = self.any_of();
            return self.take(")") && met;
        }
        let Some((name, rest)) = self.words.split_first() else { return false };
        self.words = rest;
        let mut name = (*name).to_owned();
        if self.take("WITH")
            && let Some((exception, rest)) = self.words.split_first()
        {
            self.words = rest;
            name = format!("{name} WITH {exception}");
        }
        self.allowed.contains(&name)
    }

    fn take(&mut self, word: &str) -> bool {
        let is_next = self.words.first() == Some(&word);
        self.words = &self.words[usize::from(is_next)..];
        is_next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_met_as_their_operators_say() {
        let allowed: Vec<String> = ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned).into();
        for met in [
            "MIT",
            "GPL-3.0 OR MIT",
            "GPL-3.0/MIT",
            "(GPL-3.0 OR MIT) AND ISC",
            "GPL-3.0 AND MIT OR ISC",
            "Apache-2.0 WITH LLVM-exception AND MIT",
        ] {
            assert!(is_met(met, &allowed), "{met}");
        }
        for unmet in
            ["", "GPL-3.0", "GPL-3.0 AND MIT", "MIT AND (GPL-3.0 OR Zlib)", "Apache-2.0", "MIT ISC", "(MIT"]
        {
            assert!(!is_met(unmet, &allowed), "{unmet}");
        }
    }
}

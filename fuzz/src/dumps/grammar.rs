//! Whether a text is JSON, by RFC 8259 to the letter, with nothing in common with the reader that is tested.

/// True for exactly one JSON value with nothing but blanks around it. Depth does not matter.
pub(super) fn is_json(text: &str) -> bool {
    let mut rest = Rest(text.as_bytes());
    let mut open = Vec::new();
    loop {
        rest.blanks();
        match rest.next() {
            Some(b'{') => {
                rest.blanks();
                if !rest.take(b'}') {
                    open.push(b'}');
                    if !rest.key() {
                        return false;
                    }
                    continue;
                }
            }
            Some(b'[') => {
                rest.blanks();
                if !rest.take(b']') {
                    open.push(b']');
                    continue;
                }
            }
            Some(first) if rest.scalar(first) => {}
            _ => return false,
        }
        // A value has ended here, and perhaps what it stands in.
        loop {
            rest.blanks();
            let Some(&close) = open.last() else { return rest.0.is_empty() };
            if rest.take(close) {
                open.pop();
            } else if rest.take(b',') && (close == b']' || rest.key()) {
                break;
            } else {
                return false;
            }
        }
    }
}

struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn next(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn take(&mut self, wanted: u8) -> bool {
        let there = self.0.first() == Some(&wanted);
        if there {
            self.0 = &self.0[1..];
        }
        there
    }

    fn blanks(&mut self) {
        let count = self.0.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).count();
        self.0 = &self.0[count..];
    }

    /// A member's name and the colon behind it.
    fn key(&mut self) -> bool {
        self.blanks();
        let name = self.take(b'"') && self.string();
        self.blanks();
        name && self.take(b':')
    }

    /// A string, number or word whose first byte was taken.
    fn scalar(&mut self, first: u8) -> bool {
        match first {
            b'"' => self.string(),
            b'-' => self.next().is_some_and(|digit| self.number(digit)),
            b't' => self.word(b"rue"),
            b'f' => self.word(b"alse"),
            b'n' => self.word(b"ull"),
            digit => self.number(digit),
        }
    }

    fn word(&mut self, letters: &[u8]) -> bool {
        let there = self.0.starts_with(letters);
        if there {
            self.0 = &self.0[letters.len()..];
        }
        there
    }

    /// A string behind its opening quote.
    fn string(&mut self) -> bool {
        while let Some(byte) = self.next() {
            let good = match byte {
                b'"' => return true,
                b'\\' => match self.next() {
                    Some(b'u') => (0..4).all(|_| self.next().is_some_and(|digit| digit.is_ascii_hexdigit())),
                    Some(letter) => b"\"\\/bfnrt".contains(&letter),
                    None => false,
                },
                byte => byte >= b' ',
            };
            if !good {
                return false;
            }
        }
        false
    }

    /// A number behind its sign and first digit.
    fn number(&mut self, first: u8) -> bool {
        match first {
            b'0' => {}
            b'1'..=b'9' => _ = self.digits(),
            _ => return false,
        }
        if self.take(b'.') && self.digits() == 0 {
            return false;
        }
        if self.take(b'e') || self.take(b'E') {
            _ = self.take(b'+') || self.take(b'-');
            return self.digits() > 0;
        }
        true
    }

    fn digits(&mut self) -> usize {
        let count = self.0.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.0 = &self.0[count..];
        count
    }
}

#[cfg(test)]
mod tests {
    use super::is_json;

    #[test]
    fn what_the_grammar_allows_is_json() {
        let deep = format!("{}0{}", "[".repeat(100_000), "]".repeat(100_000));
        for text in [
            "{}",
            " [ ] ",
            "0",
            "-0",
            "1.5e+9",
            "1E400",
            "\"\"",
            "null",
            "true",
            "false",
            r#"{"a":[1,{"b":null},"\ud800\n\/"],"a":{}}"#,
            "[[],{},[{}]]",
            "\r\n\t1 ",
            &deep,
        ] {
            assert!(is_json(text), "{text}");
        }
    }

    #[test]
    fn nothing_else_is_json() {
        for text in [
            "",
            " ",
            "{",
            "}",
            "[1,]",
            "[,1]",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{a:1}",
            "{'a':1}",
            "01",
            "-",
            "+1",
            ".5",
            "1.",
            "1e",
            "1e+",
            "0x1",
            "NaN",
            "nul",
            "truee",
            "\"",
            "\"\\x\"",
            "\"\\u12g4\"",
            "\"\n\"",
            "[1 2]",
            "{\"a\" 1}",
            "[}",
            "{]",
            "1 2",
            "{}{}",
            "[]\u{a0}",
            "\u{feff}{}",
            "{} //",
            "[\"a\" \"b\"]",
            "]",
        ] {
            assert!(!is_json(text), "{text}");
        }
    }
}

//! The answers that the load programs wait for: HTTP/1.1 on a connection that is kept.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpStream;

/// The next answer's body; it must tell its length.
pub(crate) fn answer(answers: &mut BufReader<TcpStream>) -> Vec<u8> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        answers.read_line(&mut line).unwrap();
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    answers.read_exact(&mut body).unwrap();
    body
}

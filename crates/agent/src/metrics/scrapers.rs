//! The connections of those who read the page. Whoever reaches the port may be anybody: there are few connections, each
//! has one short request and little time, and who holds most of them makes room for others.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, Id, JoinSet};
use tracing::warn;

use super::Scrape;
use super::page::Page;

/// Connections at the same time. Each has its headers' buffer and one descriptor.
const MOST: usize = 64;

/// How long the headers may take.
const HEADERS_WITHIN: Duration = Duration::from_secs(5);

/// How long a connection lasts at most, the reading of the page included.
const LASTS: Duration = Duration::from_secs(30);

/// Most bytes of a request's first line and headers, and of what is buffered of a connection.
const LONGEST_HEADERS: usize = 8 << 10;

/// Most headers of a request. Prometheus sends half a dozen.
const MOST_HEADERS: usize = 32;

/// After this long it is tried again to accept where the system had no descriptor.
const AGAIN: Duration = Duration::from_millis(100);

/// Serves until the runtime ends.
pub(super) async fn serve<F, A>(listener: TcpListener, page: Arc<Page<F>>) -> String
where
    F: Fn() -> A + Send + Sync + 'static,
    A: Future<Output = Option<Scrape>> + Send + 'static,
{
    let (mut tasks, mut open) = (JoinSet::new(), Open::default());
    let mut complained = false;
    loop {
        tokio::select! {
            biased;
            Some(ended) = tasks.join_next_with_id() => open.remove(id_of(&ended)),
            accepted = listener.accept() => match accepted {
                Ok((stream, from)) => {
                    while tasks.len() >= MOST {
                        open.cut_one();
                        if let Some(ended) = tasks.join_next_with_id().await {
                            open.remove(id_of(&ended));
                        }
                    }
                    let task = tasks.spawn(converse(stream, Arc::clone(&page)));
                    open.add(from.ip(), task);
                }
                Err(failure) => {
                    if !std::mem::replace(&mut complained, true) {
                        warn!("cannot take a connection for the metrics: {failure}");
                    }
                    tokio::time::sleep(AGAIN).await;
                }
            },
        }
    }
}

fn id_of(ended: &Result<(Id, ()), tokio::task::JoinError>) -> Id {
    match ended {
        Ok((id, ())) => *id,
        Err(failure) => failure.id(),
    }
}

/// One connection: one request, one answer.
async fn converse<F, A>(stream: TcpStream, page: Arc<Page<F>>)
where
    F: Fn() -> A + Send + Sync + 'static,
    A: Future<Output = Option<Scrape>> + Send + 'static,
{
    let answer = service_fn(|request| {
        let page = Arc::clone(&page);
        async move { Ok::<_, std::convert::Infallible>(page.answer(&request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_WITHIN)
        .max_buf_size(LONGEST_HEADERS)
        .max_headers(MOST_HEADERS)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), answer);
    // Its end is nobody's business, whichever it is.
    let _ = tokio::time::timeout(LASTS, connection).await;
}

/// Whose connection one is: an address, or the network that hands out as many of them as one likes.
fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address @ IpAddr::V4(_) => address,
    }
}

/// The open connections, the oldest first.
#[derive(Debug, Default)]
struct Open(VecDeque<(IpAddr, AbortHandle)>);

impl Open {
    fn add(&mut self, from: IpAddr, task: AbortHandle) {
        self.0.push_back((source(from), task));
    }

    fn remove(&mut self, id: Id) {
        self.0.retain(|(_, task)| task.id() != id);
    }

    /// Cuts the oldest connection of the source that has most. It is there until its task has ended.
    fn cut_one(&self) {
        let mut counts = BTreeMap::<IpAddr, usize>::new();
        for (from, _) in &self.0 {
            *counts.entry(*from).or_default() += 1;
        }
        let Some((greedy, _)) = counts.into_iter().max_by_key(|(_, count)| *count) else { return };
        if let Some((_, task)) = self.0.iter().find(|(from, _)| *from == greedy) {
            task.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_the_newer_protocol_is_one_source() {
        let of = |text: &str| source(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }
}

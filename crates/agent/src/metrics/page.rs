//! The page over HTTP: `/metrics`, and `/healthz` for whoever only asks whether the agent answers.
//!
//! It is made at most ten times a second, however many ask for it.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Method, Request, Response, StatusCode, header};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::Scrape;

/// What the page is served as.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What sentences are served as.
const PLAIN: &str = "text/plain; charset=utf-8";

/// For how long a page is given out.
const FRESH: Duration = Duration::from_millis(100);

/// How long the pool's task may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The page, and how to make it anew.
#[derive(Debug)]
pub(super) struct Page<F> {
    scrape: F,
    last: Mutex<Option<(Instant, Bytes)>>,
}

impl<F, A> Page<F>
where
    F: Fn() -> A,
    A: Future<Output = Option<Scrape>>,
{
    /// `scrape` asks the pool's task; it gives `None` when the agent goes down.
    pub(super) fn new(scrape: F) -> Arc<Self> {
        Arc::new(Self { scrape, last: Mutex::new(None) })
    }

    /// Answers a request.
    pub(super) async fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return response(StatusCode::METHOD_NOT_ALLOWED, PLAIN, "this page can only be read\n".into());
        }
        let path = request.uri().path();
        if !matches!(path, "/metrics" | "/healthz") {
            return response(StatusCode::NOT_FOUND, PLAIN, "look at /metrics or /healthz\n".into());
        }
        match self.text().await {
            Ok(_) if path == "/healthz" => response(StatusCode::OK, PLAIN, "ok\n".into()),
            Ok(text) => response(StatusCode::OK, OPEN_METRICS, text),
            Err(sentence) => response(StatusCode::SERVICE_UNAVAILABLE, PLAIN, sentence.into()),
        }
    }

    /// The page's text. Who asks while it is being made waits for it.
    async fn text(&self) -> Result<Bytes, &'static str> {
        let mut last = self.last.lock().await;
        if let Some((made, text)) = last.as_ref()
            && made.elapsed() < FRESH
        {
            return Ok(text.clone());
        }
        let scraped = tokio::time::timeout(PATIENCE, (self.scrape)()).await;
        let scrape = scraped.map_err(|_| "the pool's task does not answer\n")?;
        let text = scrape.and_then(|scrape| scrape.text().ok()).ok_or("the agent is going down\n")?;
        let text = Bytes::from(text);
        *last = Some((Instant::now(), text.clone()));
        Ok(text)
    }
}

fn response(status: StatusCode, kind: &'static str, text: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response
}

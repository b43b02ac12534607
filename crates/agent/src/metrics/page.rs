//! The page over HTTP: `/metrics`, for whoever may reach the address.

use std::net::SocketAddr;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use tokio::net::TcpListener;

use super::Scrape;

/// What the page is served as.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves the page in a task of its own, and says on which address. `scrape` is asked at every request; it gives `None`
/// when the agent goes down.
pub(crate) async fn serve<F, A>(address: SocketAddr, scrape: F) -> std::io::Result<SocketAddr>
where
    F: Fn() -> A + Clone + Send + Sync + 'static,
    A: Future<Output = Option<Scrape>> + Send + 'static,
{
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    let page = Router::new().route(
        "/metrics",
        get(move || {
            let scraped = scrape();
            async move { answer(scraped.await) }
        }),
    );
    tokio::spawn(async move {
        // It ends with the agent; a failed accept is retried by axum itself.
        let _ = axum::serve(listener, page).await;
    });
    Ok(address)
}

fn answer(scrape: Option<Scrape>) -> Response {
    match scrape.and_then(|scrape| scrape.text().ok()) {
        Some(text) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        None => (StatusCode::SERVICE_UNAVAILABLE, "the agent is going down\n").into_response(),
    }
}

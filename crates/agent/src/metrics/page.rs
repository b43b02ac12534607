//! The page over HTTP: `/metrics`, for whoever may reach the address.

use std::net::SocketAddr;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

use crate::driver::Input;

/// What the page is served as.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves the page in a task of its own, and says on which address.
pub(crate) async fn serve(address: SocketAddr, driver: mpsc::Sender<Input>) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    let page = Router::new().route("/metrics", get(move || scrape(driver.clone())));
    tokio::spawn(async move {
        // It ends with the agent; a failed accept is retried by axum itself.
        let _ = axum::serve(listener, page).await;
    });
    Ok(address)
}

async fn scrape(driver: mpsc::Sender<Input>) -> Response {
    let (answer, scrape) = oneshot::channel();
    let asked = driver.send(Input::Scrape { answer }).await;
    let text = match (asked, scrape.await) {
        (Ok(()), Ok(scrape)) => scrape.text().ok(),
        _ => None,
    };
    match text {
        Some(text) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        None => (StatusCode::SERVICE_UNAVAILABLE, "the agent is going down\n").into_response(),
    }
}

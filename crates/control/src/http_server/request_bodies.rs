//! Reads requests' bodies, each up to a bound, and few large ones at a time.
//!
//! A small body is read at once, so that whoever sends a large one, or sends one slowly, does not hold up those who ask
//! what is asked all day. Reading on waits for one of a few places, which are kept until the request is answered:
//! meanwhile nothing more is taken off the connection.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody as _};
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use futures::StreamExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// The most of a body that is read without a place, in bytes: more than most pods take in JSON.
const SMALL: usize = 32 << 10;
/// Large bodies at a time.
const LARGE_AT_ONCE: usize = 2;
/// From the end of a request's head to the end of its body, with the wait for a place.
const PATIENCE: Duration = Duration::from_secs(5);

/// How bodies are read.
#[derive(Clone, Debug)]
pub(crate) struct RequestBodies {
    largest: usize,
    places: Arc<Semaphore>,
}

/// Why a body was not read.
#[derive(Debug, thiserror::Error)]
enum BodyError {
    #[error("the body is larger than {0} bytes")]
    TooLarge(usize),
    #[error("the body did not come within {} seconds", PATIENCE.as_secs())]
    Late,
    #[error("the body ended early: {0}")]
    Broken(axum::Error),
}

impl RequestBodies {
    /// Bodies of at most so many bytes.
    pub(crate) fn up_to(largest: usize) -> Self {
        Self { largest, places: Arc::new(Semaphore::new(LARGE_AT_ONCE)) }
    }

    /// The router, which gets requests with their bodies read. Other routers with a clone of these share the places.
    pub(crate) fn read_for(self, router: Router) -> Router {
        router.layer(DefaultBodyLimit::disable()).layer(from_fn_with_state(self, answer))
    }

    async fn read(&self, body: Body) -> Result<(Vec<u8>, Option<OwnedSemaphorePermit>), BodyError> {
        let too_large = || BodyError::TooLarge(self.largest);
        if body.size_hint().lower() > u64::try_from(self.largest).unwrap_or(u64::MAX) {
            return Err(too_large());
        }
        let (mut read, mut place) = (Vec::new(), None);
        let mut chunks = body.into_data_stream();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(BodyError::Broken)?;
            let length = read.len() + chunk.len();
            if length > self.largest {
                return Err(too_large());
            }
            if length > SMALL && place.is_none() {
                // It is closed by nobody.
                place = Arc::clone(&self.places).acquire_owned().await.ok();
                // At once, rather than twice as much at every step.
                read.reserve_exact(self.largest - read.len());
            }
            read.extend_from_slice(&chunk);
        }
        Ok((read, place))
    }
}

async fn answer(State(bodies): State<RequestBodies>, request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    let read = timeout(PATIENCE, bodies.read(body)).await.unwrap_or(Err(BodyError::Late));
    match read {
        Ok((body, _place)) => next.run(Request::from_parts(head, body.into())).await,
        Err(failure) => {
            let status = match failure {
                BodyError::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
                BodyError::Late => StatusCode::REQUEST_TIMEOUT,
                BodyError::Broken(_) => StatusCode::BAD_REQUEST,
            };
            (status, failure.to_string()).into_response()
        }
    }
}

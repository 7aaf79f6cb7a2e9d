//! The transport over reqwest. Made by the client's builder.
//!
//! It follows no redirect, repeats nothing, and leaves the bytes of an answer as they were sent.

use std::time::Duration;

use reqwest::ClientBuilder;
use reqwest::redirect::Policy;

use crate::body::read_whole;
use crate::fault::fault_of;
use crate::response::CommandResponse;
use crate::transport::{AttemptFault, AttemptRequest, ClientFuture, Transport};

/// Transport over a client of reqwest. Its connections are kept for further attempts.
#[derive(Clone, Debug)]
pub struct ReqwestTransport {
    client: reqwest::Client,
}

impl ReqwestTransport {
    /// Makes a transport with this time for a connection, TLS included. Redirects, retries and decompression of the
    /// given client are turned off.
    ///
    /// # Errors
    /// If reqwest cannot be set up, for example without certificates of the system.
    pub fn with_connect_timeout(
        builder: ClientBuilder,
        connect_timeout: Duration,
    ) -> Result<ReqwestTransport, reqwest::Error> {
        let builder = builder.connect_timeout(connect_timeout).redirect(Policy::none()).referer(false);
        let builder = builder.retry(reqwest::retry::never());
        let client = builder.no_gzip().no_brotli().no_zstd().no_deflate().build()?;
        Ok(ReqwestTransport { client })
    }
}

impl Transport for ReqwestTransport {
    fn send(&self, request: AttemptRequest) -> ClientFuture<'_, Result<CommandResponse, AttemptFault>> {
        Box::pin(async move {
            let AttemptRequest { method, url, headers, body, response_bound, .. } = request;
            let mut built = reqwest::Request::new(method, url);
            *built.headers_mut() = headers;
            if !body.is_empty() {
                *built.body_mut() = Some(body.into());
            }
            let answer = self.client.execute(built).await.map_err(|error| fault_of_request(&error))?;
            let (head, body) = http::Response::from(answer).into_parts();
            read_whole(head, body, response_bound).await
        })
    }
}

fn fault_of_request(error: &reqwest::Error) -> AttemptFault {
    // A request that cannot be built was not sent either.
    let was_connected = !error.is_connect() && !error.is_builder();
    match fault_of(error, was_connected) {
        AttemptFault::Lost if error.is_timeout() => AttemptFault::Timeout,
        fault => fault,
    }
}

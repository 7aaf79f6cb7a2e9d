//! One request over a connection of its own, bounded at every step but in the time of the whole, which is the caller's.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri};
use hyper::body::{Body, Incoming};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// The largest head of an answer.
const MAX_HEAD: usize = 16 * 1024;

/// A host that speaks plain HTTP.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    /// What goes into the header `Host`.
    pub(crate) authority: String,
    connect_to: String,
    connect_timeout: Duration,
}

/// Why an address names no such host.
pub(crate) enum NoHost {
    /// It wants TLS.
    Tls,
    /// It is not one.
    Wrong(&'static str),
}

impl Host {
    /// The host of an address.
    pub(crate) fn of(address: &Uri) -> Result<Host, NoHost> {
        match address.scheme_str() {
            Some("http") => {}
            Some("https") => return Err(NoHost::Tls),
            _ => return Err(NoHost::Wrong("it does not begin with http://")),
        }
        let authority = address.authority().ok_or(NoHost::Wrong("it has no host"))?;
        if authority.as_str().contains('@') {
            return Err(NoHost::Wrong("it has a user, which is not sent"));
        }
        let connect_to = format!("{}:{}", authority.host(), authority.port_u16().unwrap_or(80));
        let (authority, connect_timeout) = (authority.to_string(), Duration::from_secs(3));
        Ok(Host { authority, connect_to, connect_timeout })
    }

    /// The same, with another bound on the time that connecting takes.
    #[cfg(feature = "http-sink")]
    pub(crate) fn connect_timeout(self, connect_timeout: Duration) -> Host {
        Host { connect_timeout, ..self }
    }

    /// Sends a request, and has its answer read.
    pub(crate) async fn exchange<B, T, R>(
        &self,
        request: Request<B>,
        read: impl FnOnce(Response<Incoming>) -> R,
    ) -> Result<T, String>
    where
        B: Body<Data = Bytes> + 'static,
        B::Error: std::error::Error + Send + Sync,
        R: Future<Output = Result<T, String>>,
    {
        let Host { connect_to, connect_timeout, .. } = self;
        let stream = match tokio::time::timeout(*connect_timeout, TcpStream::connect(connect_to)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(format!("cannot connect to {connect_to}: {error}")),
            Err(_) => return Err(format!("cannot connect to {connect_to}: no answer in time")),
        };
        let _ = stream.set_nodelay(true);
        let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
            .max_buf_size(MAX_HEAD)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| error.to_string())?;
        // In the same task, so that both end together.
        let answering = async {
            let answer = sender.send_request(request).await;
            read(answer.map_err(|error| format!("no answer: {error}"))?).await
        };
        tokio::pin!(connection);
        tokio::pin!(answering);
        tokio::select! {
            biased;
            answered = &mut answering => answered,
            ended = &mut connection => match ended {
                // The answer may have come before the end.
                Ok(()) => answering.await,
                Err(error) => Err(format!("no answer: {error}")),
            },
        }
    }
}

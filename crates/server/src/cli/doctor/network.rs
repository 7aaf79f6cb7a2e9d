//! Checks of the upstream and of the gateway itself. They never send a command.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::header::{AGE, DATE, HOST, USER_AGENT};
use http::uri::Authority;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use semel_core::{Clock, SystemClock, Timestamp};
use semel_gateway::tls;
use semel_gateway::tls::client::UpstreamTlsSettings;
use semel_gateway::tls::live::Live;
use semel_gateway::upstream::{Purpose, Upstream};
use semel_http::Body;
use semel_settings::{Config, UpstreamProtocol as Protocol, UpstreamReuse as Reuse, port_of};
use semel_stores::doctor::{Check, in_words};
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::report::DoctorLine;

/// Timeout for a name, a connection or an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Largest number of the upstream's addresses that are tried.
const MAX_ADDRESSES: usize = 8;
/// Largest accepted difference of two clocks. A `Date` is a whole second, and takes a moment to arrive.
const MAX_SKEW: Duration = Duration::from_secs(5);
/// Largest number of bytes of a readiness answer.
const MAX_WORDS: usize = 1024;

/// Checks that the upstream can be reached, and its clock.
pub(super) async fn upstream(config: &Config) -> Vec<Check> {
    let name = "upstream";
    let Some(authority) = config.upstream.authority() else {
        return vec![Check::fail(name, "it has no address", "set `upstream`")];
    };
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let port = port_of(&config.upstream);
    let addresses: Vec<SocketAddr> = match timeout(PATIENCE, lookup_host((host, port))).await {
        Ok(Ok(addresses)) => addresses.take(MAX_ADDRESSES).collect(),
        Ok(Err(error)) => {
            let advice = "correct the name in `upstream`, or the DNS that should know it";
            return vec![Check::fail(name, format!("the name {host} does not resolve: {error}"), advice)];
        }
        Err(_) => {
            let found = format!("the name {host} was not resolved within {}", in_words(PATIENCE));
            return vec![Check::fail(name, found, "look at this machine's resolver, in /etc/resolv.conf")];
        }
    };
    if addresses.is_empty() {
        return vec![Check::fail(
            name,
            format!("the name {host} has no address"),
            "correct it in `upstream`",
        )];
    }
    let total = addresses.len();
    let away = away(addresses).await;
    let told: Vec<String> = away.iter().map(|(address, why)| format!("{address} {}", why.tell())).collect();
    let told = told.join("; ");
    let Some((_, why)) = away.first() else { return answers(config, authority).await };
    if away.len() == total {
        return vec![Check::fail(name, told, why.advice())];
    }
    let mut checks = answers(config, authority).await;
    let advice = "the gateway tries one address after the other, which takes time: take this one out of the DNS, or \
                  start the service there";
    checks.push(Check::warn(name, told, advice));
    checks
}

/// Reason for having no connection.
#[derive(Debug, PartialEq, Eq)]
enum Away {
    Refused,
    TimedOut,
    Failed(String),
}

impl Away {
    fn tell(&self) -> String {
        match self {
            Away::Refused => "refuses connections".to_owned(),
            Away::TimedOut => format!("does not answer within {}", in_words(PATIENCE)),
            Away::Failed(why) => format!("cannot be reached: {why}"),
        }
    }

    fn advice(&self) -> &'static str {
        match self {
            Away::Refused => "nothing listens there: start the service, or correct `upstream`",
            Away::TimedOut => {
                "the machine is down, or a firewall drops the packets: correct `upstream`, or open the \
                 firewall"
            }
            Away::Failed(_) => {
                "check the network between this machine and the upstream, or correct `upstream`"
            }
        }
    }
}

/// Connects to every address at once and disconnects; returns those that failed.
async fn away(addresses: Vec<SocketAddr>) -> Vec<(SocketAddr, Away)> {
    let mut connections = JoinSet::new();
    for address in addresses {
        connections.spawn(async move { connect(address).await.err().map(|why| (address, why)) });
    }
    let mut away: Vec<_> = connections.join_all().await.into_iter().flatten().collect();
    away.sort_by_key(|(address, _)| *address);
    away
}

async fn connect(address: SocketAddr) -> Result<(), Away> {
    match timeout(PATIENCE, TcpStream::connect(address)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(match error.kind() {
            std::io::ErrorKind::ConnectionRefused => Away::Refused,
            std::io::ErrorKind::TimedOut => Away::TimedOut,
            _ => Away::Failed(error.to_string()),
        }),
        Err(_) => Err(Away::TimedOut),
    }
}

/// Checks that the upstream speaks HTTP, and its clock.
async fn answers(config: &Config, authority: &Authority) -> Vec<Check> {
    let shown = config.upstream.to_string();
    let shown = shown.trim_end_matches('/');
    // Unusable files have a check of their own.
    let Ok(tls) = tls::for_upstream(config).map(Live::new).transpose() else { return Vec::new() };
    match ask(authority, tls, config.upstream_protocol, Method::HEAD, "/").await {
        Ok(answer) => {
            let found = format!("{shown} answers; HEAD / gets {}", answer.status().as_u16());
            let mut checks = vec![Check::ok("upstream", found)];
            checks.extend(skew(&answer, SystemClock.now()));
            checks
        }
        Err(why) => vec![Check::warn(
            "upstream",
            format!("{shown} accepts connections, but does not answer HEAD /: {why}"),
            "look at its log; if it speaks another version of HTTP, set `upstream_protocol`; if its certificate is not \
             accepted, `ca` in `[upstream_tls]`",
        )],
    }
}

/// Compares the upstream's clock with this machine's. An answer from a cache says nothing about it.
fn skew(answer: &Response<Body>, now: Timestamp) -> Option<Check> {
    let date = answer.headers().get(DATE).filter(|_| !answer.headers().contains_key(AGE))?;
    let theirs = Timestamp::from_http_date(date.to_str().ok()?)?;
    let (ahead, behind) = (theirs.since(now), now.since(theirs));
    let name = "upstream clock";
    if ahead <= MAX_SKEW && behind <= MAX_SKEW {
        return Some(Check::ok(name, format!("agrees with this machine's, within {}", in_words(MAX_SKEW))));
    }
    let found = if ahead > behind {
        format!("{} ahead of this machine's", in_words(ahead))
    } else {
        format!("{} behind this machine's", in_words(behind))
    };
    let advice = "one of the two is wrong: look at `timedatectl` on both. `max_request_age` counts by this one, and \
                  leases and expiry by the store's";
    Some(Check::warn(name, found, advice))
}

/// Checks if a gateway runs with this configuration now.
pub(super) async fn gateway(config: &Config) -> DoctorLine {
    let name = "gateway";
    let (listen, admin) = (config.listen, config.admin_listen);
    if listen.port() == 0 || admin.port() == 0 {
        return DoctorLine::not_checked(
            name,
            "a port is 0, any free port, so a running gateway cannot be found",
            "give the ports that the gateway printed at its start: `--listen` and `--admin-listen`",
        );
    }
    let listens = connect(from_here(listen)).await.is_ok();
    if config.admin_tls.is_some() && connect(from_here(admin)).await.is_ok() && listens {
        // It may require a certificate that this machine lacks, and may present one for another name.
        return DoctorLine::not_checked(
            name,
            format!("something listens at {listen} and {admin}; its readiness is not asked over TLS"),
            "ask `/readyz` of the admin listener, with a client that has what `[admin_tls]` requires",
        );
    }
    let check = match (readiness(admin).await, listens) {
        (Some((StatusCode::OK, _)), true) => Check::ok(name, format!("one runs at {listen}, and is ready")),
        (Some((StatusCode::SERVICE_UNAVAILABLE, words)), _) => Check::fail(
            name,
            format!("one runs, and is not ready: {words}"),
            "see its log; until it is ready, commands get 503 and nothing runs",
        ),
        (Some(_), false) => Check::warn(
            name,
            format!("nothing listens at {listen}, and something answers at {admin}"),
            "another gateway, with other settings, has this `admin_listen`: choose another, or use its settings here",
        ),
        (Some(_) | None, true) => Check::warn(
            name,
            format!("something listens at {listen}, and no gateway answers at {admin}"),
            "unless that is a gateway with other settings, the address is taken: choose another `listen`",
        ),
        (None, false) => Check::ok(name, format!("none runs at {listen} now")),
    };
    check.into()
}

/// Returns the address on this machine of a listener on every interface.
pub(in crate::cli) fn from_here(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// Returns the admin listener's readiness answer; `None` if there is no answer.
async fn readiness(admin: SocketAddr) -> Option<(StatusCode, String)> {
    let (status, words) = admin_page(admin, "/readyz", MAX_WORDS).await?;
    Some((status, words.trim().to_owned()))
}

/// Returns a page of the admin listener, up to this size; `None` if there is no answer.
pub(super) async fn admin_page(
    admin: SocketAddr,
    path: &'static str,
    max_bytes: usize,
) -> Option<(StatusCode, String)> {
    let authority: Authority = from_here(admin).to_string().parse().ok()?;
    let answer = ask(&authority, None, Protocol::Http1, Method::GET, path).await.ok()?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), max_bytes).collect();
    let bytes = timeout(PATIENCE, body).await.ok()?.ok()?.to_bytes();
    Some((status, String::from_utf8_lossy(&bytes).into_owned()))
}

/// Sends a request without effect.
async fn ask(
    authority: &Authority,
    tls: Option<Arc<Live<UpstreamTlsSettings>>>,
    protocol: Protocol,
    method: Method,
    path: &'static str,
) -> Result<Response<Body>, String> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, authority.as_str())
        .header(USER_AGENT, "semel-doctor")
        .body(Body::full(""))
        .map_err(|error| error.to_string())?;
    let upstream = Upstream::new(authority.clone(), tls, protocol, Reuse::Never, 2 * PATIENCE);
    match timeout(PATIENCE, upstream.send(request, Purpose::PassOn(None))).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("none within {}", in_words(PATIENCE))),
    }
}

#[cfg(test)]
mod tests {
    use semel_stores::doctor::Health;

    use super::*;

    fn answered(date: &str) -> Response<Body> {
        Response::builder().header(DATE, date).body(Body::full("")).expect("it is a response")
    }

    #[test]
    fn clocks_are_apart_if_it_is_more_than_some_seconds() {
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        let theirs = Timestamp::from_http_date(date).expect("it is a date");
        let check = |millis: i64| {
            let now = Timestamp::from_millis(theirs.as_millis() + millis);
            skew(&answered(date), now).expect("it has a date")
        };
        assert_eq!(check(0).health, Health::Ok);
        assert_eq!((check(4900).health, check(-4900).health), (Health::Ok, Health::Ok));
        assert_eq!(check(65_000).found, "1 min 5 s behind this machine's");
        assert_eq!(check(-7_200_000).found, "2 h 0 min ahead of this machine's");
        assert!(matches!(check(65_000).health, Health::Warn(_)));
    }

    #[test]
    fn an_answer_without_a_date_or_out_of_a_cache_tells_no_time() {
        assert_eq!(skew(&answered("yesterday"), SystemClock.now()), None);
        let mut cached = answered("Sun, 06 Nov 1994 08:49:37 GMT");
        cached.headers_mut().insert(AGE, 60.into());
        assert_eq!(skew(&cached, SystemClock.now()), None);
    }

    #[test]
    fn every_interface_is_reached_on_loopback() {
        let reached = |text: &str| from_here(text.parse().expect("an address")).to_string();
        assert_eq!(reached("0.0.0.0:80"), "127.0.0.1:80");
        assert_eq!(reached("[::]:80"), "[::1]:80");
        assert_eq!(reached("10.0.0.7:80"), "10.0.0.7:80");
    }
}

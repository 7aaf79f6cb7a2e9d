//! Column H: cut HTTP/2 streams, between client and gateway, and between gateway and upstream.
//!
//! One cell is many commands, one for each way to cut a stream at its step. Each is judged like any other command of a
//! gateway: by the results of clients, by its record, and by the ledger.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bytes::Bytes;
use semel_testkit::http2::{CODES, Frame, Peer, REFUSED_STREAM, data, headers, reset, small_window};

use crate::client::{self, Asked};
use crate::frames::{Cut, CutMessage, FrameUpstream, Next, Point};
use crate::judge;
use crate::lab::{Lab, Place, logs};
use crate::patience::PATIENCE;
use crate::process::Process;
use crate::seen::{Record, Seen, Told};
use crate::table::{Cell, Code};
use crate::verdict::Found;
use crate::world::{Settings, start_gateway};

/// Lease longer than any command here takes.
const LEASE: Duration = Duration::from_secs(20);
const PATH: &str = "/payments";

/// Way to cut a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The client cuts within its request or right behind it.
    Request(CutMessage),
    /// The client cuts when it has this part of the response.
    Reading(Point, u32),
    /// The upstream cuts before it has executed anything.
    Declined(CutMessage),
    /// The upstream cuts after it has executed the command.
    Response(CutMessage),
}

/// Returns the ways to cut a stream at a step.
fn ways(step: usize) -> Vec<Way> {
    let messages = |points: &'static [Point]| {
        let every = points.iter().flat_map(|point| Cut::all().map(move |cut| (*point, cut)));
        every.flat_map(|(point, cut)| {
            [false, true].map(|is_announced| CutMessage { point, cut, is_announced })
        })
    };
    let within: &[Point] = &[Point::AfterHead, Point::InBody, Point::BeforeEnd];
    // Without a head, no length is announced.
    let before = || messages(&[Point::BeforeHead]).filter(|message| !message.is_announced);
    let is_refusal = |message: &CutMessage| message.cut == Cut::Reset(REFUSED_STREAM);
    match step {
        1 => messages(within).map(Way::Request).collect(),
        2 => messages(&[Point::AfterEnd]).map(Way::Request).collect(),
        4 => before().filter(is_refusal).map(Way::Declined).collect(),
        5 => before().filter(|message| !is_refusal(message)).map(Way::Declined).collect(),
        6 => before().filter(|message| !is_refusal(message)).map(Way::Response).collect(),
        7 => messages(within).map(Way::Response).collect(),
        9 => messages(&[Point::AfterEnd]).map(Way::Response).collect(),
        _ => {
            let points = [Point::BeforeHead, Point::AfterHead, Point::InBody];
            let codes = |point| CODES.map(move |code| Way::Reading(point, code));
            points.into_iter().flat_map(codes).collect()
        }
    }
}

/// Runs a cell: every way, one command each.
pub(crate) async fn run(lab: &Lab, cell: Cell, expected: Code) -> Result<Found, String> {
    let mut world = World::start(lab).await?;
    let mut found = Found::default();
    let ways = ways(cell.step);
    let count = ways.len();
    for (number, way) in ways.into_iter().enumerate() {
        let key = format!("{}-{number}", world.key);
        let seen = world.try_one(way, &key, expected).await;
        let seen = seen.map_err(|why| format!("{way:?}: {why}\n    {}", logs(&world.folder)))?;
        let violated = judge::judge(expected, &seen);
        if !violated.is_empty() {
            found.violated.push(format!("{way:?}: {}", violated.join("; ")));
            found.seen.push(format!("{way:?}: {}", seen.tell()));
        }
    }
    found.seen.push(format!("{count} ways to cut a stream"));
    Ok(found)
}

/// Two gateways before an HTTP/2 upstream.
struct World {
    folder: PathBuf,
    place: Place,
    upstream: FrameUpstream,
    a: Process,
    b: Process,
    key: String,
    /// Operation ids of earlier ways.
    known: BTreeSet<String>,
}

impl World {
    async fn start(lab: &Lab) -> Result<World, String> {
        let folder = lab.cell_folder()?;
        let settings = Settings { lease: LEASE, broken: false, path: PATH }.configuration();
        std::fs::write(folder.join("semel.toml"), format!("upstream_protocol = \"h2c\"\n{settings}"))
            .map_err(|error| error.to_string())?;
        let place = lab.place(&folder).await?;
        let key = lab.key(&folder);
        let upstream = FrameUpstream::start(&key).await?;
        let a = start_gateway(lab, &folder, &place, upstream.address, 0)?;
        let b = start_gateway(lab, &folder, &place, upstream.address, 1)?;
        Ok(World { folder, place, upstream, a, b, key, known: BTreeSet::new() })
    }

    /// Runs one command whose stream is cut this way, and retries until nothing changes any more.
    async fn try_one(&mut self, way: Way, key: &str, expected: Code) -> Result<Seen, String> {
        let body = Bytes::from(format!(r#"{{"amount":100,"note":"{key};"}}"#));
        let asked = Asked { body: body.clone(), ..Asked::command(PATH, key) };
        let marker = format!("{key};");
        let first = match way {
            Way::Request(message) => cut_request(self.a.address(), &asked, message).await,
            Way::Reading(point, code) => self.cut_reading(&asked, point, code).await,
            Way::Declined(message) => {
                self.upstream.will(Next::Declines(message));
                client::send_over_http2(self.a.address(), asked.clone()).await
            }
            Way::Response(message) => {
                self.upstream.will(Next::Cuts(message));
                client::send_over_http2(self.a.address(), asked.clone()).await
            }
        };
        // A cut request must leave no record; begun commands are checked in the end.
        let at_fault = match way {
            Way::Request(message) if message.point != Point::AfterEnd => {
                (self.record()?, self.upstream.effects(&marker).len())
            }
            _ => (None, 0),
        };
        let effects_then = self.upstream.effects(&marker).len();
        let executor_gone = expected == Code::Unknown;
        let is_other = |told: &Told| told.as_answer().is_some_and(|answer| answer.status == 422);
        let is_settled =
            |told: &Told| told.is_done() || is_other(told) || (executor_gone && told.is_unknown());
        let after = self.ask_until(&asked, is_settled).await?;
        let last = vec![
            client::send_over_http2(self.a.address(), asked.clone()).await,
            client::send(self.b.address(), asked).await,
        ];
        let record = self.record()?;
        self.known.extend(record.iter().map(|record| record.operation_id.clone()));
        let effects = self.upstream.effects(&marker);
        Ok(Seen {
            at_fault,
            first,
            during: Vec::new(),
            beyond: Vec::new(),
            effects_then,
            after,
            last,
            record,
            effects,
            operator: None,
            executor_gone,
        })
    }

    /// Returns the one record that was made since the last way.
    fn record(&self) -> Result<Option<Record>, String> {
        let mut records = self.place.records()?;
        records.retain(|record| !self.known.contains(&record.operation_id));
        match records.len() {
            0 | 1 => Ok(records.pop()),
            many => Err(format!("one command has {many} records")),
        }
    }

    /// Repeats the request at the second gateway, over HTTP/1, until a response matches.
    async fn ask_until(&self, asked: &Asked, is_it: impl Fn(&Told) -> bool) -> Result<Vec<Told>, String> {
        let begun = Instant::now();
        let mut all = Vec::new();
        loop {
            let told = client::send(self.b.address(), asked.clone()).await;
            let found = is_it(&told);
            if !found && begun.elapsed() > PATIENCE {
                return Err(format!("it did not come to an end; the last answer was {told}"));
            }
            all.push(told);
            if found {
                return Ok(all);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Sends a request, and resets its stream when this part of the response has come.
    async fn cut_reading(&self, asked: &Asked, point: Point, code: u32) -> Told {
        let window = if point == Point::InBody { 10 } else { 0 };
        let mut peer = Peer::connect(self.a.address()).await;
        peer.send(&small_window(window)).await;
        if point == Point::BeforeHead {
            self.upstream.will(Next::Holds);
        }
        let address = self.a.address().to_string();
        let request = [headers(1, &fields(asked, &address), false), data(1, &asked.body, true)].concat();
        peer.send(&request).await;
        let is_there = |frame: &Frame| match point {
            Point::InBody => !frame.data().is_empty(),
            _ => frame.is_headers(),
        };
        if point == Point::BeforeHead {
            self.upstream.is_held().await;
        } else {
            while !peer.next().await.is_none_or(|frame| is_there(&frame)) {}
        }
        peer.send(&reset(1, code)).await;
        peer.settle().await;
        self.upstream.release();
        Told::Left
    }
}

/// Sends a cut request, and waits until the gateway has read all of it.
async fn cut_request(gateway: SocketAddr, asked: &Asked, message: CutMessage) -> Told {
    let mut peer = Peer::connect(gateway).await;
    peer.send(&message.frames(1, &fields(asked, &gateway.to_string()), &asked.body)).await;
    if message.cut.ends_connection() {
        peer.finish().await;
    } else {
        peer.settle().await;
    }
    Told::Left
}

fn fields<'a>(asked: &'a Asked, authority: &'a str) -> Vec<(&'a str, &'a str)> {
    let mut fields = vec![
        (":method", asked.method),
        (":scheme", "http"),
        (":authority", authority),
        (":path", asked.path),
        ("content-type", "application/json"),
        ("x-tenant", "shop"),
        ("x-caller", asked.caller),
    ];
    fields.extend(asked.key.as_deref().map(|key| ("idempotency-key", key)));
    fields
}

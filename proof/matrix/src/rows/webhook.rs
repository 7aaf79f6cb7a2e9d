//! Step 14: a provider's event about a command whose outcome is unknown. The gateway that receives it is held where it
//! stores the event, or where it settles the command, and a fault strikes. Like real providers, this one resends the
//! event until a gateway has accepted it.

pub(super) mod judge;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use http::Request;
use http_body_util::Full;
use semel_faults::{Lever, Point};
use semel_testkit::proxy::{Cut, Held, Matching};
use serde_json::json;
use sha2::Sha256;
use tokio::task::JoinHandle;

use crate::client;
use crate::lab::Lab;
use crate::patience::PATIENCE;
use crate::process::{Process, tail};
use crate::rows::store::{Lock, break_store, mend_store};
use crate::seen::Told;
use crate::site::{Site, hex};
use crate::table::{Cell, Fault};
use crate::upstream::Mood;
use crate::verdict::Found;

use judge::{Case, Heard};

/// Steps that this module runs.
pub(crate) const STEPS: [usize; 1] = [14];

pub(super) const VARIABLE: &str = "PROVIDER_WEBHOOK_SECRET";
pub(super) const SECRET: &str = "a secret of the provider";
pub(super) const CONFIGURATION: &str = r#"
[[webhook]]
name = "provider"
secret_env = "PROVIDER_WEBHOOK_SECRET"
operations = ["payments.create"]
event_id = "/id"
operation_id = "/data/reference"
verdict = "/type"
executed = ["charge.captured"]
failed = ["charge.declined"]
response = "/data"
response_status = 201
failed_status = 402

[reconcile]
interval = "200ms"
"#;

/// SQL of a lease that expired half an hour ago.
const PAST: &str = "created_at - 1800000";
/// Longer than most steps take, and shorter than SQLite's busy timeout.
const SLOW: Duration = Duration::from_millis(1_400);
/// Duration of a store fault.
const MOMENT: Duration = Duration::from_millis(500);
const HOUR_MILLIS: i64 = 3_600_000;

/// Verdict of an operator while a gateway is suspended.
const VERDICT: &str = r#"{"effect":"as the operator saw it"}"#;

/// Runs a cell.
pub(crate) async fn run(lab: &Lab, cell: Cell) -> Result<Found, String> {
    let mut site = Site::start(lab, Mood::Well).await?;
    site.set_variable(VARIABLE, SECRET);
    site.configure("semel.toml", CONFIGURATION)?;
    let seen = heard(&site, cell).await;
    let log = || ["a", "b"].map(|name| tail(&site.folder.join(format!("{name}.log")))).join("\n    ");
    let seen = seen.map_err(|why| format!("{why}\n    {}", log()))?;
    Ok(Found { violated: judge::judge(&seen), seen: vec![seen.tell(), log()] })
}

/// Place at which a gateway is held while it handles an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    EvidenceSent,
    EvidenceCommitted,
    VerdictSent,
    VerdictCommitted,
}

impl At {
    const ALL: [At; 4] = [At::EvidenceSent, At::EvidenceCommitted, At::VerdictSent, At::VerdictCommitted];
    const SENT: [At; 2] = [At::EvidenceSent, At::VerdictSent];

    fn point(self) -> Point {
        match self {
            At::EvidenceSent => Point::EvidenceSent,
            At::EvidenceCommitted => Point::EvidenceCommitted,
            At::VerdictSent => Point::VerdictSent,
            At::VerdictCommitted => Point::VerdictCommitted,
        }
    }

    /// Returns the statement that a proxy sees there.
    fn matching(self) -> Matching {
        match self {
            At::EvidenceSent | At::EvidenceCommitted => Matching::statement("INSERT INTO semel_evidence"),
            At::VerdictSent => Matching::statement("UPDATE semel_records AS r SET operation_id"),
            // The verdict and its audit entry are one transaction.
            At::VerdictCommitted => Matching::commit(),
        }
    }
}

/// Two gateways on one store. The fault strikes the first.
struct Gateways {
    a: Process,
    b: Process,
}

impl Gateways {
    fn start(site: &Site<'_>) -> Result<Gateways, String> {
        let (a, b) = (site.gateway("a", 0, "semel.toml")?, site.gateway("b", 1, "semel.toml")?);
        Ok(Gateways { a, b })
    }
}

enum Hold {
    Point(Point),
    Wire(Held),
}

impl Hold {
    fn release(self, gateway: &Process) {
        match self {
            Hold::Point(point) => gateway.release(point),
            Hold::Wire(held) => held.release(),
        }
    }
}

/// Sends the event of a case to gateway `a`, and holds it there.
async fn bring(
    site: &Site<'_>,
    a: &Process,
    case: &Case,
    at: At,
) -> Result<(Hold, JoinHandle<Told>), String> {
    let Some((_, proxies)) = site.place.server() else {
        a.arm(at.point())?;
        let sent = tokio::spawn(deliver(a.address(), case.clone()));
        a.is_held(at.point()).await?;
        return Ok((Hold::Point(at.point()), sent));
    };
    let held = match at {
        At::EvidenceSent | At::VerdictSent => proxies[0].hold_statement(at.matching()),
        At::EvidenceCommitted | At::VerdictCommitted => proxies[0].hold_answer(at.matching()),
    };
    let sent = tokio::spawn(deliver(a.address(), case.clone()));
    let reached = tokio::time::timeout(PATIENCE, held.reached()).await;
    reached.map_err(|_| format!("nobody came to {at:?}"))?;
    Ok((Hold::Wire(held), sent))
}

/// Makes commands that were executed, and whose outcome is unknown.
async fn plant(site: &Site<'_>, count: usize) -> Result<Vec<Case>, String> {
    let mut gateway = site.gateway("planted", 1, "semel.toml")?;
    let mut cases: Vec<Case> = Vec::new();
    let mut clients = Vec::new();
    for number in 0..count {
        gateway.arm(Point::HandlerAnswered)?;
        let asked = site.payment(&format!("case-{number}"));
        clients.push(tokio::spawn(client::send(gateway.address(), asked)));
        gateway.is_taken(Point::HandlerAnswered).await?;
        let rows = site.rows("semel_records")?;
        let new = rows.iter().find(|row| !cases.iter().any(|case| case.operation_id == row.operation_id()));
        let id = new.ok_or("a command that runs has no record")?.operation_id().to_owned();
        cases.push(Case::new(number, id));
    }
    gateway.kill();
    for client in clients {
        let _ = client.await;
    }
    let ids: Vec<&str> = cases.iter().map(|case| case.operation_id.as_str()).collect();
    site.change_records(&ids, &format!("due_at = {PAST}"))?;
    match site.finish(&["sweep"], 0).await? {
        0 => Ok(cases),
        code => Err(format!("the sweep ended with {code}")),
    }
}

async fn heard(site: &Site<'_>, cell: Cell) -> Result<Heard, String> {
    let count = match cell.fault {
        Fault::Kill => 4,
        Fault::ClockJump => 3,
        Fault::Failover | Fault::Stopped => 1,
        _ => 2,
    };
    let mut cases = plant(site, count).await?;
    if cell.fault == Fault::Failover {
        site.place.keep_copy()?;
    }
    let mut gateways = Gateways::start(site)?;
    let mut poison = Vec::new();
    match cell.fault {
        Fault::Kill => {
            for (case, at) in cases.iter_mut().zip(At::ALL) {
                let (hold, sent) = bring(site, &gateways.a, case, at).await?;
                gateways.a.kill();
                if let (Some((_, proxies)), true) = (site.place.server(), At::SENT.contains(&at)) {
                    // Writes that it had not sent are lost with it.
                    proxies[0].cut_all().await;
                }
                hold.release(&gateways.a);
                case.deliveries.push(told(sent).await);
                gateways.a = site.gateway("a", 0, "semel.toml")?;
            }
        }
        Fault::DatabaseKilled | Fault::DiskFull | Fault::PoolExhausted | Fault::ReadOnly => {
            for (case, at) in cases.iter_mut().zip(At::SENT) {
                let (hold, sent) = bring(site, &gateways.a, case, at).await?;
                let lock = break_store(&site.place, &[&gateways.a], cell.fault).await?;
                hold.release(&gateways.a);
                tokio::time::sleep(MOMENT).await;
                mend_store(&site.place, &[&gateways.a], cell.fault, lock).await?;
                case.deliveries.push(told(sent).await);
            }
        }
        Fault::Slow => {
            for (case, at) in cases.iter_mut().zip(At::SENT) {
                let (hold, sent) = bring(site, &gateways.a, case, at).await?;
                slow(site, &gateways.a, hold).await?;
                case.deliveries.push(told(sent).await);
            }
        }
        Fault::AnswerLost => {
            for (case, at) in cases.iter_mut().zip(At::SENT) {
                case.deliveries.push(answer_lost(site, &gateways.a, case, at).await?);
            }
        }
        Fault::Failover => lose(site, &mut gateways, &mut cases[0]).await?,
        Fault::ClockJump => {
            for (case, millis) in cases.iter_mut().zip([-HOUR_MILLIS, 10_000, HOUR_MILLIS]) {
                gateways.a.pull(Lever::Clock(millis)).await?;
                gateways.b.pull(Lever::Clock(millis)).await?;
                case.deliveries.push(deliver(gateways.a.address(), case.clone()).await);
            }
        }
        Fault::Stopped => {
            let case = &mut cases[0];
            let (hold, sent) = bring(site, &gateways.a, case, At::EvidenceSent).await?;
            gateways.a.stop(true);
            site.resolve(&case.operation_id, VERDICT)?;
            case.operator = Some(Bytes::from_static(VERDICT.as_bytes()));
            gateways.a.stop(false);
            hold.release(&gateways.a);
            case.deliveries.push(told(sent).await);
        }
        Fault::Duplicate => {
            for (case, at) in cases.iter_mut().zip(At::SENT) {
                let (hold, sent) = bring(site, &gateways.a, case, at).await?;
                let other = deliver(gateways.b.address(), case.clone()).await;
                hold.release(&gateways.a);
                case.deliveries.extend([other, told(sent).await]);
            }
        }
        Fault::Poison => poison = poisoned(site, &gateways, &mut cases).await?,
        Fault::ClientGone | Fault::StreamCut => {
            return Err("a provider that leaves is one that sends again".to_owned());
        }
    }
    end(site, &gateways, cases, poison).await
}

async fn told(task: JoinHandle<Told>) -> Told {
    task.await.unwrap_or(Told::Left)
}

async fn slow(site: &Site<'_>, a: &Process, hold: Hold) -> Result<(), String> {
    let Some((_, proxies)) = site.place.server() else {
        let lock = Lock::take(&site.place)?;
        hold.release(a);
        tokio::time::sleep(SLOW).await;
        return lock.release();
    };
    proxies[0].blackhole();
    hold.release(a);
    tokio::time::sleep(SLOW).await;
    proxies[0].heal().await.map_err(|error| error.to_string())
}

/// Executes a write and loses its answer.
async fn answer_lost(site: &Site<'_>, a: &Process, case: &Case, at: At) -> Result<Told, String> {
    let Some((_, proxies)) = site.place.server() else {
        let (hold, sent) = bring(site, a, case, at).await?;
        a.pull(Lever::LoseAnswer).await?;
        hold.release(a);
        return Ok(told(sent).await);
    };
    let matching = if at == At::VerdictSent { At::VerdictCommitted.matching() } else { at.matching() };
    let armed = proxies[0].cut_next(matching, Cut::AfterServerAnswered);
    let sent = tokio::spawn(deliver(a.address(), case.clone()));
    let struck = tokio::time::timeout(PATIENCE, armed.struck()).await;
    struck.map_err(|_| "the statement was never sent")?;
    Ok(told(sent).await)
}

/// Delivers an event that is used, and then loses these writes of the store.
async fn lose(site: &Site<'_>, gateways: &mut Gateways, case: &mut Case) -> Result<(), String> {
    case.lost
        .extend([deliver(gateways.a.address(), case.clone()).await, site.pay(&gateways.b, "case-0").await]);
    gateways.a.kill();
    gateways.b.kill();
    site.place.lose_all_since_copy().await?;
    *gateways = Gateways::start(site)?;
    case.unknown_again = Some(site.pay(&gateways.b, "case-0").await);
    Ok(())
}

/// Sends invalid events, and adds unreadable evidence about other commands and about the same.
async fn poisoned(
    site: &Site<'_>,
    gateways: &Gateways,
    cases: &mut [Case],
) -> Result<Vec<(u16, Told)>, String> {
    let good = event(&cases[0]);
    let a = gateways.a.address();
    let stranger = Case::new(9, "01900000-0000-7000-8000-000000000000".to_owned());
    let another_word = good.replace("charge.captured", "charge.considered");
    let mut answers = Vec::new();
    for (status, id, body, secret) in [
        (401, "p1", good.clone(), "somebody else's secret"),
        (400, "p2", "no JSON at all".to_owned(), SECRET),
        (404, "p3", event(&stranger), SECRET),
        (200, "p4", another_word, SECRET),
        (413, "p5", format!("{good}{}", " ".repeat(2 << 20)), SECRET),
    ] {
        answers.push((status, post(a, id, &body, secret).await));
    }
    for case in &*cases {
        let columns = "source, event_id, operation_id, content, verdict, why, received_at";
        let id = site.literal(&case.operation_id);
        let content = if id.starts_with("x'") { "x'00'" } else { "'\\x00'::bytea" };
        let event_id = &case.event_id;
        let values =
            format!("'provider', 'damaged-{event_id}', {id}, {content}, 'petrified', '', max(updated_at)");
        let insert = format!("INSERT INTO semel_evidence ({columns}) SELECT {values} FROM semel_records");
        site.change(&insert)?;
    }
    for case in cases {
        case.deliveries.push(deliver(a, case.clone()).await);
    }
    Ok(answers)
}

/// Sends each event until it is accepted, and retries the commands until nothing changes any more.
async fn end(
    site: &Site<'_>,
    gateways: &Gateways,
    mut cases: Vec<Case>,
    poison: Vec<(u16, Told)>,
) -> Result<Heard, String> {
    for (number, case) in cases.iter_mut().enumerate() {
        let begun = Instant::now();
        for gateway in [&gateways.b, &gateways.a].into_iter().cycle() {
            let is_heard = case.deliveries.last().is_some_and(judge::is_taken);
            if is_heard || begun.elapsed() > PATIENCE {
                break;
            }
            case.deliveries.push(deliver(gateway.address(), case.clone()).await);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        // The provider sends the event again, as if it had lost the response.
        case.deliveries.push(deliver(gateways.a.address(), case.clone()).await);
        let name = format!("case-{number}");
        let begun = Instant::now();
        loop {
            let settled = site.pay(&gateways.b, &name).await;
            if settled.is_done() || begun.elapsed() > PATIENCE / 3 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let event_id = case.event_id.clone();
        let is_closed = || {
            let open = format!(
                "SELECT event_id FROM semel_evidence WHERE done_at IS NULL AND event_id = '{event_id}'"
            );
            site.ask(&open).is_ok_and(|rows| rows.is_empty())
        };
        let begun = Instant::now();
        while !is_closed() && begun.elapsed() < PATIENCE / 3 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        for gateway in [&gateways.a, &gateways.b] {
            case.told.push(site.pay(gateway, &name).await);
        }
    }
    Ok(Heard {
        records: site.rows("semel_records")?,
        evidence: site.rows("semel_evidence")?,
        audit: site.rows("semel_audit")?,
        cases,
        poison,
        effects: site.upstream.effects().len(),
    })
}

fn event(case: &Case) -> String {
    let data = json!({ "reference": case.operation_id, "by": "event" });
    json!({ "id": case.event_id, "type": "charge.captured", "data": data }).to_string()
}

/// Sends the event of a case.
pub(super) async fn deliver(address: SocketAddr, case: Case) -> Told {
    post(address, &case.event_id, &event(&case), SECRET).await
}

/// Sends an event with this id, signed now.
async fn post(address: SocketAddr, id: &str, body: &str, secret: &str) -> Told {
    let request = match signed(address, id, body, secret) {
        Ok(request) => request,
        Err(why) => return Told::Dropped(why),
    };
    client::send_request(address, request).await
}

fn signed(address: SocketAddr, id: &str, body: &str, secret: &str) -> Result<Request<Full<Bytes>>, String> {
    let second = || {
        let clock = rusqlite::Connection::open_in_memory()?;
        clock.query_row("SELECT unixepoch()", [], |row| row.get::<_, i64>(0))
    };
    let second = second().map_err(|error: rusqlite::Error| error.to_string())?;
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).map_err(|error| error.to_string())?;
    mac.update(format!("{second}.{id}.{body}").as_bytes());
    let signature = format!("t={second},v1={}", hex(&mac.finalize().into_bytes()));
    Request::builder()
        .method("POST")
        .uri("/.well-known/semel/webhooks/provider")
        .header("host", address.to_string())
        .header("content-type", "application/json")
        .header("semel-event-id", id)
        .header("semel-signature", signature)
        .body(Full::new(Bytes::from(body.to_owned())))
        .map_err(|error| error.to_string())
}

//! Brings the first request to a step, and holds it there: at a fault point, on the wire, or in the upstream.

use semel_faults::Point;
use semel_testkit::proxy::{Held, Matching};
use tokio::task::JoinHandle;

use crate::patience::PATIENCE;
use crate::seen::Told;
use crate::table::Cell;
use crate::world::World;

/// Statements of the PostgreSQL store, as a proxy sees them.
pub(super) const CLAIM: &str = "INSERT INTO semel_records (";
pub(super) const COMPLETION: &str = "UPDATE semel_records AS r SET state = i.state";
pub(super) const CHANGE: &str = "UPDATE semel_records AS r SET operation_id = i.operation_id";

/// Place at which the first request is held.
pub(super) enum Hold {
    Point(Point),
    Wire(Held),
    Upstream,
    Both(Box<Hold>, Box<Hold>),
}

impl Hold {
    pub(super) fn release(self, world: &World<'_>) {
        match self {
            Hold::Point(point) => world.a.release(point),
            Hold::Wire(held) => held.release(),
            Hold::Upstream => world.upstream.release(),
            Hold::Both(one, other) => {
                one.release(world);
                other.release(world);
            }
        }
    }
}

/// Sends the first request, and holds it at the step.
pub(super) async fn bring(world: &World<'_>, cell: Cell) -> Result<(Hold, JoinHandle<Told>), String> {
    let at = async |point: Point| {
        world.a.arm(point)?;
        let first = world.send(&world.a);
        world.a.is_held(point).await?;
        Ok((Hold::Point(point), first))
    };
    let wire = async |held: Held| {
        let first = world.send(&world.a);
        reached(&held).await?;
        Ok((Hold::Wire(held), first))
    };
    let (_, proxies) = world.place.server().unzip();
    let proxy = proxies.map(|proxies| &proxies[0]);
    match (cell.step, proxy) {
        (1, _) => at(Point::RequestRead).await,
        (2, Some(proxy)) => wire(proxy.hold_statement(Matching::statement(CLAIM))).await,
        (2, None) => at(Point::ClaimSent).await,
        (3, Some(proxy)) => wire(proxy.hold_answer(Matching::statement(CLAIM))).await,
        (3, None) => at(Point::ClaimCommitted).await,
        (4, _) => at(Point::HandlerCalled).await,
        (5 | 6, _) => {
            let first = world.send(&world.a);
            upstream_holds(world).await?;
            Ok((Hold::Upstream, first))
        }
        (7, _) => at(Point::HandlerAnswered).await,
        (9, Some(proxy)) => wire(proxy.hold_statement(Matching::statement(COMPLETION))).await,
        (9, None) => at(Point::SettlementSent).await,
        (10, _) => at(Point::ResponseOut).await,
        (17, _) => at(Point::CacheFilled).await,
        (18, _) => {
            let first = world.send(&world.a);
            upstream_holds(world).await?;
            let renewal = match proxy {
                Some(proxy) => {
                    let held = proxy.hold_statement(Matching::statement(CHANGE));
                    reached(&held).await?;
                    Hold::Wire(held)
                }
                None => {
                    world.a.arm(Point::RenewalSent)?;
                    world.a.is_held(Point::RenewalSent).await?;
                    Hold::Point(Point::RenewalSent)
                }
            };
            Ok((Hold::Both(Box::new(renewal), Box::new(Hold::Upstream)), first))
        }
        (step, _) => Err(format!("step {step} is not brought about here")),
    }
}

async fn reached(held: &Held) -> Result<(), String> {
    let reached = tokio::time::timeout(PATIENCE, held.reached()).await;
    reached.map_err(|_| "the statement was never sent".to_owned())
}

async fn upstream_holds(world: &World<'_>) -> Result<(), String> {
    let held = tokio::time::timeout(PATIENCE, world.upstream.is_held()).await;
    held.map_err(|_| "the service was never called".to_owned())
}

//! Injection of one fault: it begins, lasts until the cluster has answered it, and is healed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use semel_testkit::Chance;

use crate::base::Base;
use crate::faults::Fault;
use crate::health::Health;
use crate::network::{GATEWAYS, NODES, Seat};
use crate::patroni::Patroni;
use crate::settings::{SKEW, TTL};
use crate::world::{RECOVERY, World};

/// Longest wait for another leader. A fault that moves no leader ends then.
const TAKEOVER: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(200);
/// Length of a paused leader's sleep after another one took over.
const OVERSLEEP: Duration = Duration::from_secs(3);
/// Time after which a watchdog resets a leader that stands still: five seconds before its lock ends.
const WATCHDOG: Duration = TTL.saturating_sub(Duration::from_secs(5));

/// Injects a fault and heals it.
pub(crate) async fn strike(
    world: &Arc<World>,
    fault: Fault,
    health: &Health,
    chance: &mut Chance,
) -> Result<(), String> {
    if fault == Fault::Gateway {
        return kill_gateway(world, chance).await;
    }
    let (health, time) = (health.clone(), chance.millis(5_000, 8_000));
    let (etcd, gateway) = (chance.pick(&NODES), chance.pick(&GATEWAYS));
    world
        .blocking(move |world| match &world.base {
            Base::Plain(replication) => replication.fail_over(),
            Base::Patroni(patroni) => Blow { patroni, health, time, etcd, gateway }.strike(fault),
        })
        .await
}

/// Returns the name of the first part that a fault hits.
pub(crate) fn target(fault: Fault, health: &Health) -> &'static str {
    match fault {
        Fault::Standby | Fault::CutStandby => health.synchronous.map_or("standby", |seat| seat.name),
        Fault::Etcd => "etcd",
        Fault::Gateway | Fault::CutGateway => "gateway",
        _ => health.leader.name,
    }
}

async fn kill_gateway(world: &Arc<World>, chance: &mut Chance) -> Result<(), String> {
    let number = chance.index(world.gateways.len());
    world
        .blocking(move |world| {
            world.gateways[number].kill();
            Ok(())
        })
        .await?;
    tokio::time::sleep(chance.millis(500, 2_000)).await;
    world.start_gateway(number).await
}

/// One fault of the cluster in namespaces.
struct Blow<'a> {
    patroni: &'a Patroni,
    health: Health,
    /// Length of a fault that nothing answers.
    time: Duration,
    etcd: Seat,
    gateway: Seat,
}

impl Blow<'_> {
    fn strike(&self, fault: Fault) -> Result<(), String> {
        let (patroni, leader) = (self.patroni, self.health.leader);
        let others = NODES.into_iter().filter(|seat| *seat != leader);
        match fault {
            Fault::Leader => {
                patroni.kill(leader)?;
                self.wait_for_another_leader();
                patroni.start_manager(leader)
            }
            Fault::Standby => {
                let standby = self.standby()?;
                patroni.kill(standby)?;
                std::thread::sleep(self.time);
                patroni.start_manager(standby)
            }
            Fault::Etcd => {
                patroni.kill_etcd(self.etcd);
                std::thread::sleep(self.time);
                patroni.restart_etcd(self.etcd)
            }
            Fault::Both => {
                let standby = self.standby()?;
                patroni.kill(leader)?;
                patroni.kill(standby)?;
                std::thread::sleep(self.time);
                patroni.start_manager(standby)?;
                self.wait_for_another_leader();
                patroni.start_manager(leader)
            }
            Fault::CutLeader => {
                patroni.network.cut(leader)?;
                self.wait_for_another_leader();
                patroni.network.heal(leader)
            }
            Fault::CutStandby => {
                let standby = self.standby()?;
                patroni.network.cut(standby)?;
                std::thread::sleep(self.time);
                patroni.network.heal(standby)
            }
            Fault::CutPeers => {
                for other in others.clone() {
                    patroni.network.separate(leader, other)?;
                }
                self.wait_for_another_leader();
                others.into_iter().try_for_each(|other| patroni.network.join(leader, other))
            }
            Fault::CutGateway => {
                for node in NODES {
                    patroni.network.separate(self.gateway, node)?;
                }
                std::thread::sleep(self.time);
                NODES.into_iter().try_for_each(|node| patroni.network.join(self.gateway, node))
            }
            Fault::Pause => {
                patroni.suspend(leader);
                self.wait_for_another_leader();
                std::thread::sleep(OVERSLEEP);
                patroni.resume(leader);
                Ok(())
            }
            Fault::PauseReset => {
                patroni.suspend(leader);
                std::thread::sleep(WATCHDOG);
                patroni.kill(leader)?;
                self.wait_for_another_leader();
                patroni.start_manager(leader)
            }
            Fault::Disk => {
                patroni.limit_files(leader, Some(0))?;
                self.wait_for_another_leader();
                patroni.limit_files(leader, None)
            }
            Fault::Switchover => patroni.switch_over(leader, self.standby()?),
            Fault::Restart => self.restart(),
            Fault::Clock => {
                for shift in
                    [format!("-{}s", SKEW.as_secs()), format!("+{}s", SKEW.as_secs()), "+0".to_owned()]
                {
                    patroni.set_clock(leader, &shift)?;
                    std::thread::sleep(self.time);
                }
                Ok(())
            }
            // Not a fault of the cluster: the gateway's process was killed above.
            Fault::Gateway => Ok(()),
        }
    }

    fn standby(&self) -> Result<Seat, String> {
        let other = NODES.into_iter().find(|seat| *seat != self.health.leader);
        self.health.synchronous.or(other).ok_or_else(|| "there is no standby".to_owned())
    }

    /// Waits until a node of a later timeline leads, or nothing happens for long.
    fn wait_for_another_leader(&self) {
        let deadline = Instant::now() + TAKEOVER;
        let is_old = || self.patroni.leader().is_none_or(|leader| leader.timeline <= self.health.timeline);
        while is_old() && Instant::now() < deadline {
            std::thread::sleep(POLL);
        }
    }

    /// Restarts the standbys, then the leader, after another node has taken its place.
    fn restart(&self) -> Result<(), String> {
        let leader = self.health.leader;
        for standby in NODES.into_iter().filter(|seat| *seat != leader) {
            self.restart_one(standby)?;
        }
        let now = self.wait_until_healthy()?;
        if now.leader == leader {
            let to = now.synchronous.or(NODES.into_iter().find(|seat| *seat != leader));
            self.patroni.switch_over(leader, to.ok_or("there is no standby")?)?;
            self.wait_until_healthy()?;
        }
        self.restart_one(leader)
    }

    fn restart_one(&self, seat: Seat) -> Result<(), String> {
        self.patroni.stop(seat)?;
        self.patroni.start_manager(seat)?;
        self.wait_until_healthy().map(drop)
    }

    fn wait_until_healthy(&self) -> Result<Health, String> {
        self.patroni.wait_until_healthy(RECOVERY)
    }
}

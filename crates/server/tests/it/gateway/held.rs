//! Holds enforced by a whole gateway: an operator adds one on the command line, and commands, retries and the lift obey.

use std::sync::Arc;
use std::time::Duration;

use super::lab::{Gateway, Reply, Send, Site, Upstream, pay, problem};

/// Two operations that take commands with and without a key, of tenants that a proxy names.
const FILE: &str = "[identity]\nsource = \"trusted-headers\"\ntrusted_proxies = [\"127.0.0.1\"]\n\
                    tenant_header = \"X-Tenant\"\ncaller_header = \"X-Caller\"\n\
                    [[operation]]\nname = \"payments.create\"\nmatch = \"POST /payments\"\nkey = \"optional\"\n\
                    [[operation]]\nname = \"mails.send\"\nmatch = \"POST /mails\"\nkey = \"optional\"\n";

/// Number of tries until a change of the holds is known, which takes a gateway two seconds.
const TRIES: usize = 400;

struct Desk {
    site: Site,
    upstream: Arc<Upstream>,
    gateway: Gateway,
    next: std::cell::Cell<usize>,
}

impl Desk {
    async fn open(site: Site) -> Desk {
        let upstream = Upstream::start().await;
        let gateway = site.start_with(upstream.address, FILE, &[]);
        Desk { site, upstream, gateway, next: std::cell::Cell::new(0) }
    }

    /// Returns a command of this tenant under a key of its own.
    fn command(&self, tenant: &str, path: &str) -> Send {
        let number = self.next.get();
        self.next.set(number + 1);
        of(tenant, path).set("idempotency-key", format!("a-key-of-its-own-{number:06}"))
    }

    fn hold(&self, action: &str, target: [&str; 2]) {
        let hold = ["hold", action, target[0], target[1], "--reason", "incident 42"];
        let done = self.site.semel().args(hold).output().expect("the program runs");
        assert!(done.status.success(), "{done:?}");
    }

    /// Sends new commands of this tenant until one is answered with this status: every gateway learns of a change soon.
    async fn until(&self, status: u16, tenant: &str, path: &str) -> Reply {
        for _ in 0..TRIES {
            let reply = self.gateway.send(self.command(tenant, path)).await;
            if reply.status == status {
                return reply;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        panic!("no command got {status}: {}", self.gateway.log());
    }
}

fn of(tenant: &str, path: &str) -> Send {
    pay("{}").target(path).with("x-tenant", tenant).with("x-caller", "shop")
}

fn assert_held(reply: &Reply) {
    assert_eq!(reply.problem(), problem(503, "IDEMPOTENCY_HELD"));
    let later = reply.header("retry-after").and_then(|seconds| seconds.parse::<u64>().ok());
    assert!(later.is_some_and(|seconds| seconds > 0), "{reply:?}");
}

/// Holds a target that stops commands of acme at /payments, and no command of `other`.
async fn hold_and_lift(site: Site, target: [&str; 2], other: (&str, &str)) {
    let desk = Desk::open(site).await;
    let known = of("acme", "/payments").set("idempotency-key", "a-key-before-the-hold");
    let first = desk.gateway.send(known).await;
    assert_eq!(first.status, 201, "{first:?}");

    desk.hold("add", target);
    assert_held(&desk.until(503, "acme", "/payments").await);
    let (seen, states) = (desk.upstream.seen(), desk.site.states());
    let refused = || of("acme", "/payments").set("idempotency-key", "a-key-under-the-hold");
    assert_held(&desk.gateway.send(refused()).await);
    assert_held(&desk.gateway.send(refused()).await);
    assert_held(&desk.gateway.send(of("acme", "/payments").without("idempotency-key")).await);
    let replay =
        desk.gateway.send(of("acme", "/payments").set("idempotency-key", "a-key-before-the-hold")).await;
    assert!(replay.replayed() && replay.status == 201 && replay.body == first.body, "{replay:?}");
    assert_eq!(
        (desk.upstream.seen(), desk.site.states()),
        (seen, states),
        "nothing ran, and no key is used up"
    );

    let (tenant, path) = other;
    let free = desk.gateway.send(desk.command(tenant, path)).await;
    assert_eq!(free.status, 201, "another target is not held: {free:?}");

    desk.hold("lift", target);
    desk.until(201, "acme", "/payments").await;
    let runs = desk.gateway.send(refused()).await;
    assert!(runs.status == 201 && !runs.replayed(), "the key that was refused is still new: {runs:?}");
    let keyless = desk.gateway.send(of("acme", "/payments").without("idempotency-key")).await;
    assert_eq!(keyless.status, 201, "{keyless:?}");
}

#[tokio::test]
async fn a_held_operation_takes_no_new_commands_until_it_is_lifted() {
    let target = ["--operation", "payments.create"];
    hold_and_lift(Site::new(), target, ("acme", "/mails")).await;
}

#[tokio::test]
async fn a_held_tenant_takes_no_new_commands_until_it_is_lifted() {
    hold_and_lift(Site::new(), ["--tenant", "acme"], ("globex", "/payments")).await;
}

#[tokio::test]
async fn a_held_operation_takes_no_new_commands_until_it_is_lifted_on_postgresql() {
    let target = ["--operation", "payments.create"];
    hold_and_lift(Site::on_postgres(), target, ("acme", "/mails")).await;
}

#[tokio::test]
async fn a_held_tenant_takes_no_new_commands_until_it_is_lifted_on_postgresql() {
    hold_and_lift(Site::on_postgres(), ["--tenant", "acme"], ("globex", "/payments")).await;
}

//! A clock that is set forward past the time to live while gateways run: no command runs again on any of
//! them.

use std::path::Path;
use std::time::Duration;

use semel_faults::{Lever, VARIABLE};
use tempfile::TempDir;

use super::lab::{Gateway, Site, Upstream, pay};

const THREE_HOURS: i64 = 3 * 3_600_000;

/// Gateway, and the folder through which its clock is set.
struct Node {
    gateway: Gateway,
    faults: TempDir,
}

impl Node {
    fn start(site: &Site, upstream: &Upstream) -> Node {
        let faults = TempDir::new().expect("there is room for a test");
        let folder = faults.path().to_str().expect("it is text");
        let file = "[maintenance]\nsweep_interval = \"50ms\"\nreap_interval = \"50ms\"\n";
        let gateway = site.start_in(upstream.address, file, &["--ttl", "1h"], &[(VARIABLE, folder)]);
        Node { gateway, faults }
    }

    /// Sets its clock, and waits until that was done.
    async fn set_forward(&self, millis: i64) {
        let lever = Lever::Jump(millis);
        let (file, draft) = (self.faults.path().join(lever.name()), self.faults.path().join("draft"));
        std::fs::write(&draft, lever.value()).expect("there is room");
        std::fs::rename(&draft, &file).expect("it is there");
        gone(&file).await;
    }
}

async fn gone(file: &Path) {
    for _ in 0..2_000 {
        if !file.exists() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("nobody took {}", file.display());
}

#[tokio::test]
async fn a_clock_set_past_the_ttl_runs_nothing_again_on_any_of_three_gateways() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let mut nodes: Vec<Node> = (0..3).map(|_| Node::start(&site, &upstream)).collect();
    let first = nodes[0].gateway.send(pay("{}")).await;
    assert_eq!(first.status, 201);
    for node in &nodes {
        node.set_forward(THREE_HOURS).await;
    }
    for node in &nodes[..2] {
        let again = node.gateway.send(pay("{}")).await;
        assert_eq!((again.status, &again.body), (first.status, &first.body));
    }
    nodes[2] = Node::start(&site, &upstream);
    nodes[2].set_forward(THREE_HOURS).await;
    for node in &nodes {
        let again = node.gateway.send(pay("{}")).await;
        assert_eq!((again.status, &again.body), (first.status, &first.body));
    }
    assert_eq!(site.states(), ["succeeded"], "nothing was forgotten");
    assert_eq!(upstream.effects(), 1);
}

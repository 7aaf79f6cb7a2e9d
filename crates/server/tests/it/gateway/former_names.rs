//! Records from before their command had a rule: an added rule does not make their keys new.

use super::lab::{Site, Upstream, pay};

const RULE: &str = "[[operation]]\nname = \"payments.create\"\nmatch = \"POST /payments\"\nttl = \"7d\"\n";

#[tokio::test]
async fn a_rule_that_is_added_runs_no_live_key_again() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let before = site.start(upstream.address, &[]);
    assert_eq!(before.send(pay("{}")).await.status, 201);
    drop(before);
    let with_rule = site.start_with(upstream.address, RULE, &[]);
    let retry = with_rule.send(pay("{}")).await;
    assert!(retry.status == 201 && retry.replayed(), "{retry:?}");
    let other = with_rule.send(pay(r#"{"amount": 7}"#)).await;
    assert_eq!(other.status, 422, "it is compared with that record");
    assert_eq!(upstream.seen(), 1);
}

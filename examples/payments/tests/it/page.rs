//! The provider's page and the service's, in a real browser.

use crate::browser;
use crate::http::{get, post};
use crate::process::{Provider, folder, order};
use crate::receiver::Webhooks;
use crate::service::{Place, Service};

#[test]
fn switches_are_flipped_in_a_browser_and_references_are_text() {
    let folder = folder();
    let provider = Provider::start(&folder, &[]);
    let webhooks = Webhooks::listen(&[]);
    webhooks.subscribe(&provider);
    provider.send(&post("/charges", &order("order-1")));
    provider.send(&post("/charges", &order("<script>document.title = \"taken over\"</script>")));
    let picture = browser::run("provider.mjs", &format!("http://{}", provider.address), &[]);
    assert!(picture.is_file(), "{}", picture.display());
    assert_eq!(provider.ledger().len(), 3);
}

#[test]
fn a_form_in_a_browser_pays_once_whatever_is_clicked_reloaded_or_lost() {
    let folder = folder();
    let provider = Provider::start(&folder, &[]);
    let service = Service::start(&Place::sqlite(&folder), &provider, &["--patience", "3s"]);
    let provider = format!("http://{}", provider.address);
    let picture = browser::run("pay.mjs", &format!("http://{}", service.address), &[&provider]);
    assert!(picture.is_file(), "{}", picture.display());
}

#[test]
fn an_order_is_paid_once_whatever_happens_to_its_pages_and_their_network() {
    let folder = folder();
    let provider = Provider::start(&folder, &[]);
    let service = Service::start(&Place::sqlite(&folder), &provider, &[]);
    let provider = format!("http://{}", provider.address);
    let picture = browser::run("intents.mjs", &format!("http://{}", service.address), &[&provider]);
    assert!(picture.is_file(), "{}", picture.display());
}

#[test]
fn the_pages_allow_no_script_but_their_own() {
    let folder = folder();
    let provider = Provider::start(&folder, &[]);
    let service = Service::start(&Place::sqlite(&folder), &provider, &[]);
    let pages = [
        (provider.send(&get("/")), "Nothing was charged yet."),
        (service.send(&get("/")), "There are none yet."),
    ];
    for (page, expected) in pages {
        assert!(page.body.contains(expected), "{}", page.body);
        let policy = page.header("content-security-policy").expect("it has one");
        assert!(policy.starts_with("default-src 'none'") && policy.contains("script-src 'self'"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
    }
}

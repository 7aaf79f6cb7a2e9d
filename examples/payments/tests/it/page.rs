//! The provider's page, in a real browser.

use crate::browser;
use crate::http::{get, post};
use crate::process::{Provider, folder, order};
use crate::receiver::Webhooks;

#[test]
fn switches_are_flipped_in_a_browser_and_references_are_text() {
    let folder = folder();
    let provider = Provider::start(&folder, &[]);
    let webhooks = Webhooks::listen(&[]);
    webhooks.subscribe(&provider);
    provider.send(&post("/charges", &order("order-1")));
    provider.send(&post("/charges", &order("<script>document.title = \"taken over\"</script>")));
    let picture = browser::run("provider.mjs", &format!("http://{}", provider.address));
    assert!(picture.is_file(), "{}", picture.display());
    assert_eq!(provider.ledger().len(), 3);
}

#[test]
fn the_page_allows_no_script_but_its_own() {
    let folder = folder();
    let provider = Provider::start(&folder, &[]);
    let page = provider.send(&get("/"));
    assert!(page.body.contains("Nothing was charged yet."), "{}", page.body);
    let policy = page.header("content-security-policy").expect("it has one");
    assert!(policy.starts_with("default-src 'none'") && policy.contains("script-src 'self'"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
}

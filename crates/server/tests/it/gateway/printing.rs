//! Tables and lines of the command line: nothing that clients or services named steers the terminal.

use std::io::Write;
use std::process::Stdio;

use super::lab::{Site, Upstream, pay};

/// Names that would turn the rest of a line around.
const TENANT: &str = "ac\u{202e}me";
const CALLER: &str = "sh\u{2066}op";
const OPERATION: &str = "pay\u{200f}ments";
const REPLACED: &str = "ac\u{fffd}me";

fn file() -> String {
    format!(
        "[identity]\nsource = \"api-key\"\n[limits]\ntenant_new_keys = \"1000/s\"\n\
         [[operation]]\nname = \"{OPERATION}\"\nmatch = \"POST /payments\"\n"
    )
}

fn assert_steers_nothing(what: &[&str], text: &str) {
    let steering = text.chars().find(|c| *c != '\n' && semel_core::text::steers(*c));
    assert_eq!(steering, None, "{what:?}: {text:?}");
}

#[tokio::test]
async fn no_name_of_a_caller_or_a_service_steers_the_terminal() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    std::fs::write(site.folder.path().join("semel.toml"), file()).expect("there is room");
    let run = |arguments: &[&str], input: &str| {
        let mut process = site
            .semel()
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program runs");
        // A program that does not want its input may be gone by now.
        let _ = process.stdin.take().expect("it is piped").write_all(input.as_bytes());
        let output = process.wait_with_output().expect("it ends");
        (
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned(),
        )
    };
    let create = ["keys", "create", "--tenant", TENANT, "--caller", CALLER];
    let (key, told) = run(&create, "");
    assert_steers_nothing(&create, &told);
    let gateway = site.start_with(upstream.address, &file(), &[]);
    let send = async |key: &str, command: &str, what: &str| {
        let request = pay("{}").set("authorization", format!("Bearer {}", key.trim()));
        let reply = gateway.send(request.set("idempotency-key", command).doing(what)).await;
        reply.operation_id().unwrap_or_else(|| panic!("{reply:?}")).to_owned()
    };
    let unknown = send(&key, "an-unknown-command", "status-200 outcome-unknown").await;
    let settled = send(&key, "a-settled-command", "").await;
    let event = format!("{settled}:made\u{202e}");
    let (id, payload) = match site.is_postgres() {
        true => (format!("'{settled}'"), "'x'::bytea".to_owned()),
        false => (format!("X'{}'", settled.replace('-', "")), "CAST('x' AS BLOB)".to_owned()),
    };
    site.column(&format!(
        "INSERT INTO semel_outbox (event_id, operation_id, position, kind, payload, state, created_at)
         VALUES ('{event}', {id}, 0, 'made\u{202e}', {payload}, 'dead', 1000) RETURNING event_id"
    ));
    let verdict = format!("{{\"operationId\":\"{unknown}\",\"verdict\":\"not-executed\"}}\n");
    let reason = ["--reason", "ticket 7"];
    let scope = ["--tenant", TENANT, "--operation", OPERATION];
    let commands: [(&[&str], &str, Option<&str>); 19] = [
        (&["records", "list"], "", Some(REPLACED)),
        (&["records", "list", "--state", "unknown"], "", Some(REPLACED)),
        (&["records", "list", "--operation", "no\u{202e}ne"], "", None),
        (&["records", "show", &unknown], "", Some(REPLACED)),
        (&["records", "explain", &unknown], "", Some(REPLACED)),
        (&["records", "find", &settled], "", Some(REPLACED)),
        (&[&["records", "find", "--reference", "or\u{202e}der"][..], &scope].concat(), "", None),
        (
            &["records", "find", "--tenant", "x", "--operation", OPERATION, "--caller", CALLER],
            "absent-0123456789",
            None,
        ),
        (&[&["records", "settle", "-", "--dry-run"][..], &reason].concat(), &verdict, Some("refused")),
        (&["keys", "list"], "", Some(REPLACED)),
        (&["keys", "revoke", "no\u{202e}ne"], "", None),
        (&["quotas", "list"], "", None),
        (&[&["hold", "add", "--tenant", TENANT][..], &reason].concat(), "", Some(REPLACED)),
        (&["hold", "list"], "", Some(REPLACED)),
        (&["notes"], "", Some(REPLACED)),
        (&["reconcile", "--list"], "", Some("pay\u{fffd}ments")),
        (&["outbox", "list"], "", Some("made\u{fffd}")),
        (&["outbox", "show", &event], "", Some("made\u{fffd}")),
        (&[&["outbox", "discard", &event][..], &reason].concat(), "", Some("made\u{fffd}")),
    ];
    for (arguments, input, shown) in commands {
        let (_, told) = run(arguments, input);
        assert_steers_nothing(arguments, &told);
        assert!(shown.is_none_or(|shown| told.contains(shown)), "{arguments:?} shows it: {told}");
    }
    for arguments in [&["config", "show"][..], &["doctor"]] {
        assert_steers_nothing(arguments, &run(arguments, "").1);
    }
}

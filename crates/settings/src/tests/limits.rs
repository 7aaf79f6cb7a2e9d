//! `[limits]` and `[[limit]]`.

use std::time::Duration;

use semel_core::quota::{Allowance, Exception, Rate};

use super::*;

const LIMITS: &str = r#"
[limits]
tenant_new_keys     = "500/s"
tenant_lookups      = "60000 / m"
tenant_active_keys  = 1000000
tenant_stored_bytes = "10GiB"
caller_new_keys     = "50/10s"

[[limit]]
tenant   = "acme"
new_keys = "2000/s"

[[limit]]
tenant      = "acme"
caller      = "batch job"
active_keys = 5
"#;

fn rate(count: u32, seconds: u64) -> Option<Rate> {
    Rate::new(count, Duration::from_secs(seconds))
}

#[test]
fn limits_are_read_as_people_write_them() {
    let limits = config(LIMITS).limits;
    let tenant = Allowance {
        new_keys: rate(500, 1),
        lookups: rate(60_000, 60),
        active_keys: Some(1_000_000),
        stored_bytes: Some(10 << 30),
    };
    assert_eq!(limits.tenant, tenant);
    assert_eq!(limits.caller, Allowance { new_keys: rate(50, 10), ..Allowance::default() });
    let acme = |caller: Option<&str>, allowance| Exception {
        tenant: "acme".into(),
        caller: caller.map(str::to_owned),
        allowance,
    };
    let expected = [
        acme(None, Allowance { new_keys: rate(2000, 1), ..Allowance::default() }),
        acme(Some("batch job"), Allowance { active_keys: Some(5), ..Allowance::default() }),
    ];
    assert_eq!(limits.exceptions, expected);
    assert!(!config("").limits.is_anything(), "without it, nothing is limited");
}

#[test]
fn limits_are_shown_with_their_configured_values_and_sources() {
    let loaded = loaded(&file(LIMITS));
    let shown: Vec<String> = loaded.rows.iter().map(ToString::to_string).collect();
    for row in [
        "limits.tenant_new_keys = \"500/s\"  # semel.toml:3",
        "limits.tenant_lookups = \"60000/m\"  # semel.toml:4",
        "limits.tenant_stored_bytes = \"10GiB\"  # semel.toml:6",
        "limits.caller_new_keys = \"50/10s\"  # semel.toml:7",
        "limits.caller_lookups = \"off\"  # default",
        "limit.acme.new_keys = \"2000/s\"  # semel.toml:11",
        "limit.active_keys = 5  # semel.toml:16",
    ] {
        assert!(shown.iter().any(|shown| shown == row), "{row}: {shown:#?}");
    }
}

#[test]
fn zero_malformed_or_incomplete_limits_are_refused() {
    for (text, why) in [
        ("[limits]\ntenant_new_keys = \"0/s\"", "the count must be at least one"),
        ("[limits]\ntenant_new_keys = \"100\"", "expected a rate such as \"100/s\""),
        ("[limits]\ntenant_new_keys = \"100/fortnight\"", "expected a rate"),
        ("[limits]\ntenant_new_keys = \"100/2d\"", "expected a rate"),
        ("[limits]\ntenant_active_keys = 0", "expected an integer of at least 1"),
        ("[limits]\ntenant_stored_bytes = \"0B\"", "expected a size"),
        ("[limits]\ntenant_newkeys = \"1/s\"", "did you mean `tenant_new_keys`?"),
        ("[limits]\nnew_keys = \"1/s\"", "`[[limit]]`"),
        ("[[limit]]\nnew_keys = \"1/s\"", "missing: the tenant of the limit"),
        ("[[limit]]\ntenant = \"acme\"", "expected at least one of"),
        ("[[limit]]\ntenant = \"\"\nnew_keys = \"1/s\"", "the tenant is empty"),
        ("[limit]\ntenant = \"acme\"", "write `[[limit]]`, in double brackets"),
        (
            "[[limit]]\ntenant = \"a\"\nlookups = \"1/s\"\n[[limit]]\ntenant = \"a\"\nlookups = \"2/s\"",
            "another `[[limit]]` has the same tenant and caller",
        ),
    ] {
        let refused = refused(&file(text));
        assert!(refused.contains(why), "{text}:\n{refused}");
    }
}

#[test]
fn more_new_keys_than_look_ups_are_warned_of() {
    let text = "[limits]\ncaller_new_keys = \"100/s\"\ncaller_lookups = \"1000/m\"\n";
    let warnings = loaded(&file(text)).warnings;
    assert!(
        warnings.iter().any(|warning| warning.to_string().contains("every new key is also a look-up")),
        "{warnings:?}"
    );
    let fits = "[limits]\ncaller_new_keys = \"10/s\"\ncaller_lookups = \"1000/m\"\n";
    assert!(loaded(&file(fits)).warnings.is_empty());
}

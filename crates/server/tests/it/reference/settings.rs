//! `settings.md`: every setting, from `semel_settings::settings`.

use semel_settings::SettingInfo;

use super::assert_page;
use super::markdown::{cell, code, codes, table};

const HEAD: &str = "\
# Settings

Every setting, by its table in `semel.toml`. [Configure the gateway](../how-to/configure.md) says where to begin, and which source wins.
`semel config init` prints the same list as a file, `semel config show` the values in force and their sources.

Durations are written `200ms`, `30s`, `1h30m`, `7d`; sizes `4096`, `64KiB`, `10MB`. Settings at the top level and in `[defaults]` also
have a flag and a variable each: `ttl` is `--ttl` and `SEMEL_TTL`. All others are set in the file only. A setting without a
default is off, or required where its table is used.
";

/// Returns the heading of a table and a sentence about it.
fn introduction(table: &str) -> (&'static str, &'static str) {
    match table {
        "" => ("The top level", "Addresses of the gateway, its upstream and its store."),
        "admin.token" => (
            "`[[admin.token]]`",
            "A token of the admin listener, any number of them: [tokens and roles](../how-to/admin.md#tokens-and-roles).",
        ),
        "admin.sso" => (
            "`[admin.sso]`",
            "People whom a proxy in front of the admin listener has signed in: [single sign-on](../how-to/admin.md#single-sign-on).",
        ),
        "server" => (
            "`[server]`",
            "Bounds of client connections and requests: [Tune bounds and connections](../how-to/tune.md).",
        ),
        "cors" => ("`[cors]`", "Browsers of other origins: [Allow browsers](../how-to/cors.md)."),
        "identity" => (
            "`[identity]`",
            "Identity of callers: [Identify callers](../how-to/identity.md). `source` decides which of the others apply.",
        ),
        "defaults" => {
            ("`[defaults]`", "Rules for commands. An `[[operation]]` may set each of them for itself.")
        }
        "operation" => (
            "`[[operation]]`",
            "A rule for the commands of one route, any number of them: [operations](../how-to/configure.md#operations). \
             Every setting of `[defaults]` is allowed here as well.",
        ),
        "operation.reconcile" => (
            "`[operation.reconcile]`",
            "The look-up of unknown outcomes at a provider, below its `[[operation]]`: \
             [Look up unknown outcomes](../how-to/reconcile.md).",
        ),
        "pass" => (
            "`[[pass]]`",
            "An exemption of one route from refusals, any number of them: [exempt a route](../how-to/configure.md#exempt-a-route).",
        ),
        "webhook" => (
            "`[[webhook]]`",
            "A source of events about commands, any number of them: [Receive provider webhooks](../how-to/webhooks.md).",
        ),
        "limits" => (
            "`[limits]`",
            "Quotas of every tenant and caller: [Limit tenants and callers](../how-to/quotas.md).",
        ),
        "limit" => {
            ("`[[limit]]`", "The quotas of one tenant or caller, in place of `[limits]`; any number of them.")
        }
        "reconcile" => (
            "`[reconcile]`",
            "Intervals of the reconciler: [Look up unknown outcomes](../how-to/reconcile.md).",
        ),
        "maintenance" => ("`[maintenance]`", "Sweeping of expired leases and removal of expired records."),
        "traces" => ("`[traces]`", "The collector of traces: [Trace requests](../how-to/trace.md)."),
        "ledger" => {
            ("`[ledger]`", "The scheduled comparison of ledgers: [Compare ledgers](../how-to/ledger.md).")
        }
        "encryption" => {
            ("`[encryption]`", "Encryption of stored data: [Encrypt stored data](../how-to/encryption.md).")
        }
        "encryption.key" => {
            ("`[[encryption.key]]`", "An encryption key, any number of them; one is the current key.")
        }
        "tls" => ("`[tls]`", "TLS on `listen`: [Serve TLS](../how-to/tls.md)."),
        "admin_tls" => ("`[admin_tls]`", "TLS on `admin_listen`."),
        "upstream_tls" => {
            ("`[upstream_tls]`", "TLS to the upstream: [the upstream](../how-to/tls.md#the-upstream).")
        }
        other => panic!("say in `introduction` what the table [{other}] is for"),
    }
}

/// Returns the accepted values. The page's head says once how durations and sizes are written.
fn values(info: &SettingInfo) -> String {
    if !info.choices.is_empty() {
        return codes(info.choices.iter().copied());
    }
    let short = info.expected.replace(" such as \"200ms\", \"30s\", \"1h30m\" or \"7d\"", "");
    let short = short.replace(" such as \"64KiB\", \"1MiB\", \"10MB\" or 4096", "");
    let mark = |(index, part): (usize, &str)| match index % 2 {
        0 => part.to_owned(),
        _ => format!("`\"{part}\"`"),
    };
    cell(&short.split('"').enumerate().map(mark).collect::<String>())
}

fn row(info: &SettingInfo) -> [String; 4] {
    if let (Some(flag), Some(variable)) = (info.flag(), info.variable()) {
        let named = (info.name.replace('_', "-"), format!("SEMEL_{}", info.name.to_uppercase()));
        assert_eq!((flag, variable), named, "the page's head says how flags and variables are named");
    }
    let default = info.default.as_deref().map(code).unwrap_or_default();
    [code(info.name), default, values(info), cell(info.help)]
}

fn section(infos: &[SettingInfo]) -> String {
    let (name, is_global) = (infos[0].table, infos[0].is_global());
    assert_eq!(is_global, matches!(name, "" | "defaults"), "the page's head says which tables have flags");
    let (heading, about) = introduction(name);
    let in_file = heading.trim_matches('`');
    assert!(name.is_empty() || semel_settings::init().contains(in_file), "{in_file} is written otherwise");
    let table = table(["setting", "default", "values", "meaning"], infos.iter().map(row));
    format!("\n## {heading}\n\n{about}\n\n{table}")
}

#[test]
fn the_page_of_settings_lists_every_setting() {
    let settings = semel_settings::settings();
    let tables = settings.chunk_by(|one, next| one.table == next.table);
    let sections: String = tables.map(section).collect();
    assert_page("settings.md", &format!("{HEAD}{sections}"));
}

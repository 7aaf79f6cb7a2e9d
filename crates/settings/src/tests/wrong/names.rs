//! Unknown names, and names in the wrong place.

use super::*;

#[test]
fn an_unknown_name_is_told_the_nearest_known_one() {
    wrong(
        r#"
lisen = "127.0.0.1:1"
frobnicate = 1
[identiy]
source = "none"
[operations]
[defaults]
tll = "1h"
Key-Syntax = "strict"
[server]
idle_time_out = "1s"
[[operation]]
name = "a"
match = "POST /a"
alias = ["b"]
fingerprint_exlude = []
[frobnicate2]
"#,
        r#"
semel.toml:1:1: error: `lisen`: unknown setting; did you mean `listen`?
 1 | lisen = "127.0.0.1:1"
   | ^^^^^
semel.toml:2:1: error: `frobnicate`: unknown setting; `semel config init` prints all there are
 2 | frobnicate = 1
   | ^^^^^^^^^^
semel.toml:3:2: error: `identiy`: unknown table; did you mean `identity`?
 3 | [identiy]
   |  ^^^^^^^
semel.toml:5:2: error: `operations`: unknown table; did you mean `operation`?
 5 | [operations]
   |  ^^^^^^^^^^
semel.toml:7:1: error: `defaults.tll`: unknown setting; did you mean `ttl`?
 7 | tll = "1h"
   | ^^^
semel.toml:8:1: error: `defaults.Key-Syntax`: unknown setting; did you mean `key_syntax`?
 8 | Key-Syntax = "strict"
   | ^^^^^^^^^^
semel.toml:10:1: error: `server.idle_time_out`: unknown setting; did you mean `idle_timeout`?
 10 | idle_time_out = "1s"
    | ^^^^^^^^^^^^^
semel.toml:14:1: error: `operation.a.alias`: unknown setting; did you mean `aliases`?
 14 | alias = ["b"]
    | ^^^^^
semel.toml:15:1: error: `operation.a.fingerprint_exlude`: unknown setting; did you mean `fingerprint_exclude`?
 15 | fingerprint_exlude = []
    | ^^^^^^^^^^^^^^^^^^
semel.toml:16:2: error: `frobnicate2`: unknown table; `semel config init` prints all there are
 16 | [frobnicate2]
    |  ^^^^^^^^^^^
"#,
    );
}

#[test]
fn a_setting_in_the_wrong_table_is_refused_with_the_right_table() {
    wrong(
        r#"
ttl = "1h"
tenant_header = "X"
match = "POST /a"
[defaults]
listen = "127.0.0.1:1"
business_reference = "/a"
[server]
reap_batch = 1
"#,
        r#"
semel.toml:1:1: error: `ttl`: belongs to `[defaults]`
 1 | ttl = "1h"
   | ^^^
semel.toml:2:1: error: `tenant_header`: belongs to `[identity]`
 2 | tenant_header = "X"
   | ^^^^^^^^^^^^^
semel.toml:3:1: error: `match`: belongs to `[[operation]]`
 3 | match = "POST /a"
   | ^^^^^
semel.toml:5:1: error: `defaults.listen`: belongs to the top level, above any table
 5 | listen = "127.0.0.1:1"
   | ^^^^^^
semel.toml:6:1: error: `defaults.business_reference`: belongs to `[[operation]]`
 6 | business_reference = "/a"
   | ^^^^^^^^^^^^^^^^^^
semel.toml:8:1: error: `server.reap_batch`: belongs to `[maintenance]`
 8 | reap_batch = 1
   | ^^^^^^^^^^
"#,
    );
}

#[test]
fn planned_setting_names_are_refused_as_reserved() {
    wrong(
        r#"
[outbox]
[[operation]]
name = "a"
match = "POST /a"
outbox = 1
"#,
        r#"
semel.toml:1:2: error: `outbox`: reserved: not built yet
 1 | [outbox]
   |  ^^^^^^
semel.toml:5:1: error: `operation.a.outbox`: reserved: not built yet
 5 | outbox = 1
   | ^^^^^^
"#,
    );
}

#[test]
fn a_table_in_place_of_a_value_or_a_value_of_a_table_is_refused() {
    wrong(
        r#"
defaults = 3
server = "x"
[[maintenance]]
[operation]
name = "a"
[listen]
"#,
        r#"
semel.toml:1:12: error: `defaults`: expected a table: write `[defaults]`
 1 | defaults = 3
   |            ^
semel.toml:2:10: error: `server`: expected a table: write `[server]`
 2 | server = "x"
   |          ^^^
semel.toml:3:1: error: `maintenance`: expected a table: write `[maintenance]`
 3 | [[maintenance]]
   | ^^^^^^^^^^^^^^^
semel.toml:4:2: error: `operation`: expected a list of tables: write `[[operation]]`, in double brackets
 4 | [operation]
   |  ^^^^^^^^^
semel.toml:6:1: error: `listen`: expected an IP address and a port, such as "127.0.0.1:8080" or "[::1]:8080", found a table
 6 | [listen]
   | ^^^^^^^^
"#,
    );
}

#[test]
fn operations_are_tables() {
    wrong(
        r#"
operation = 3
"#,
        r#"
semel.toml:1:13: error: `operation`: expected tables, each written `[[operation]]`, found 3
 1 | operation = 3
   |             ^
"#,
    );
}

#[test]
fn each_operation_is_a_table() {
    wrong(
        r#"
operation = [3, { name = "a", match = "POST /a" }, "b"]
"#,
        r#"
semel.toml:1:14: error: `operation`: expected a table, written `[[operation]]`, found 3
 1 | operation = [3, { name = "a", match = "POST /a" }, "b"]
   |              ^
semel.toml:1:52: error: `operation`: expected a table, written `[[operation]]`, found "b"
 1 | operation = [3, { name = "a", match = "POST /a" }, "b"]
   |                                                    ^^^
"#,
    );
}

#[test]
fn invalid_toml_is_reported_with_its_place() {
    wrong(
        r#"
listen = 127.0.0.1:8080
store = "sqlite:semel.db
[defaults]
ttl = 24h
ttl = "1h"
lease
"#,
        r#"
semel.toml:1:15: error: not TOML: invalid float, expected nothing
 1 | listen = 127.0.0.1:8080
   |               ^^^^^^^^^
semel.toml:2:25: error: not TOML: invalid basic string, expected `"`
 2 | store = "sqlite:semel.db
   |                         ^
semel.toml:4:7: error: not TOML: string values must be quoted, expected literal string
 4 | ttl = 24h
   |       ^^^
semel.toml:5:1: error: not TOML: duplicate key
 5 | ttl = "1h"
   | ^^^
semel.toml:6:6: error: not TOML: key with no value, expected `=`
 6 | lease
   |      ^
"#,
    );
}

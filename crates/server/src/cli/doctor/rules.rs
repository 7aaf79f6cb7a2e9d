//! Check for rules that no request has matched for long, whose route may be misspelled. It reads the metrics
//! of the running gateway.

use std::time::Duration;

use http::StatusCode;
use semel_core::{Clock, SystemClock, Timestamp};
use semel_settings::Config;
use semel_stores::doctor::{Check, in_words};

use super::network::admin_page;
use super::report::DoctorLine;

const NAME: &str = "rules";
/// Metric with the time of the last match of each rule.
const LAST_MATCHED: &str = "idempotency_rule_last_matched_seconds{operation=\"";
/// Time without a match after which a rule is questioned.
const LONG: Duration = Duration::from_secs(24 * 60 * 60);
/// Largest size of metrics that is read, in bytes.
const MAX_METRICS_BYTES: usize = 16 << 20;
/// Largest number of rules that are named.
const MAX_NAMED: usize = 10;

/// Asks the running gateway for rules without a match; `None` if there are no rules.
pub(super) async fn examine(config: &Config) -> Option<DoctorLine> {
    if config.operations.is_empty() {
        return None;
    }
    let not_checked = |why: String| {
        let advice = "look at the metric `idempotency_rule_last_matched_seconds` of each gateway, which has the time of \
                      the last match of each rule";
        Some(DoctorLine::not_checked(NAME, why, advice))
    };
    let admin = config.admin_listen;
    if admin.port() == 0 {
        return not_checked("the port of `admin_listen` is 0, any free port".to_owned());
    }
    if !config.admin_tokens.is_empty() || config.admin_sso.is_some() {
        return not_checked("the admin listener needs a token, and this command has none".to_owned());
    }
    if config.admin_tls.is_some() {
        return not_checked("the admin listener speaks TLS, which this command does not use".to_owned());
    }
    let Some((status, metrics)) = admin_page(admin, "/metrics", MAX_METRICS_BYTES).await else {
        return not_checked(format!("no gateway answers at {admin}"));
    };
    if status != StatusCode::OK {
        return not_checked(format!("{admin} answers /metrics with {}", status.as_u16()));
    }
    let rules: Vec<&str> = config.operations.iter().map(|operation| operation.name.as_str()).collect();
    Some(judge(&rules, &metrics, SystemClock.now()).into())
}

fn judge(rules: &[&str], metrics: &str, now: Timestamp) -> Check {
    let last = |rule: &&str| metrics.lines().find_map(|line| matched(line, rule));
    let known: Vec<(&str, Duration)> =
        rules.iter().filter_map(|rule| Some((*rule, now.since(last(rule)?)))).collect();
    let mut unmatched: Vec<&(&str, Duration)> = known.iter().filter(|(_, ago)| *ago >= LONG).collect();
    if unmatched.is_empty() {
        let found = match known.len() {
            0 => "the running gateway has none of these rules: it has other settings".to_owned(),
            1 => "a request matched the one rule within a day, or the gateway has run for less".to_owned(),
            all => {
                format!("requests matched each of {all} rules within a day, or the gateway has run for less")
            }
        };
        return Check::ok(NAME, found);
    }
    unmatched.sort_by_key(|(_, ago)| std::cmp::Reverse(*ago));
    let named = unmatched.iter().take(MAX_NAMED);
    let named: Vec<String> = named.map(|(rule, ago)| format!("{rule} for {}", in_words(*ago))).collect();
    let more = match unmatched.len() - named.len() {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    Check::warn(
        NAME,
        format!("no request has matched {}{more}", named.join(", ")),
        "compare `match` with the paths that clients use: a command that matches no rule follows [defaults]",
    )
}

/// Returns the time in a line of the metrics, if the line is about this rule.
fn matched(line: &str, rule: &str) -> Option<Timestamp> {
    let (label, value) = line.strip_prefix(LAST_MATCHED)?.rsplit_once("\"} ")?;
    let escaped = rule.replace('\\', "\\\\").replace('"', "\\\"");
    let seconds: f64 = value.trim().parse().ok().filter(|_| label == escaped)?;
    let since_1970 = Duration::try_from_secs_f64(seconds).ok()?;
    i64::try_from(since_1970.as_millis()).ok().map(Timestamp::from_millis)
}

#[cfg(test)]
mod tests {
    use semel_stores::doctor::Health;

    use super::*;

    #[test]
    fn a_rule_that_no_request_matched_for_a_day_is_named() {
        let now = Timestamp::from_millis(1_800_000_000_000);
        let metrics = "# HELP idempotency_rule_last_matched_seconds UNIX time\n\
                       # TYPE idempotency_rule_last_matched_seconds gauge\n\
                       idempotency_rule_last_matched_seconds{operation=\"used\"} 1799999999.5\n\
                       idempotency_rule_last_matched_seconds{operation=\"wrong\"} 1799900000\n\
                       idempotency_rule_last_matched_seconds{operation=\"older \\\"one\\\"\"} 1799000000\n";
        let check = judge(&["used", "wrong", "older \"one\"", "new"], metrics, now);
        assert!(matches!(check.health, Health::Warn(_)));
        assert_eq!(check.found, "no request has matched older \"one\" for 11 days 13 h, wrong for 1 day 3 h");
        let fine = judge(&["used"], metrics, now);
        assert_eq!(fine.health, Health::Ok, "{}", fine.found);
        let other = judge(&["new"], metrics, now);
        assert!(other.found.contains("other settings"), "{}", other.found);
    }
}

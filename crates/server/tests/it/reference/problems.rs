//! `problems.md`: every kind of problem, from `semel_core::problem`.

use semel_core::policy::Profile;
use semel_core::problem::ProblemKind;
use semel_core::{Problem, RetryAdvice};
use serde_json::Value;

use super::assert_page;
use super::markdown::{cell, code, table};

const HEAD: &str = "\
# Problems

Every error that Semel itself answers with, by its `code`. Programs read the `code`, or the slug in `type`
(`urn:semel:problem:SLUG`); both are promises, titles are not. The status is the usual one: the [contract](contract.md#what-the-client-gets)
says in which situation a client gets which problem, and where another status replaces the usual one. A running gateway
serves the advice at `/.well-known/semel/problems/SLUG`.

The sections follow `Idempotency-Retry`, the [advice about a retry](contract.md#advice-about-a-retry) that each problem carries.
";

/// Text before the table of Stripe's errors.
const STRIPE: &str = "
## With `profile = \"stripe\"`

The same problems in [Stripe's envelope](../how-to/stripe.md). A dash means that the field is absent.

";

fn section(advice: RetryAdvice) -> String {
    let title = match advice {
        RetryAdvice::SameKey => "Send the same request again",
        RetryAdvice::Poll => "Ask for the operation",
        RetryAdvice::Never => "Do not send the request again as it is",
    };
    let kinds = ProblemKind::ALL.into_iter().filter(|kind| kind.retry_advice() == advice);
    let rows = kinds.map(|kind| {
        [
            code(kind.code()),
            kind.status(Profile::Ietf).as_u16().to_string(),
            code(kind.slug()),
            cell(kind.title()),
            cell(kind.advice()),
        ]
    });
    let table = table(["`code`", "status", "slug", "title", "what to do"], rows);
    format!("\n## {title}: `{}`\n\n{table}", advice.as_str())
}

/// Returns the row of a problem in Stripe's envelope; `None` if it has none.
fn stripe(kind: ProblemKind) -> Option<[String; 5]> {
    let problem = Problem::new(kind, "");
    let document: Value = serde_json::from_str(&problem.to_json(Profile::Stripe)).expect("it is JSON");
    let error = document.get("error")?;
    let member = |name: &str| code(error[name].as_str().expect("it is text"));
    let fields = problem.header_fields(Profile::Stripe);
    let retry = fields.iter().find(|(name, _)| name == "stripe-should-retry");
    let retry = retry.map(|(_, value)| code(value.to_str().expect("it is text")));
    Some([
        code(kind.code()),
        kind.status(Profile::Stripe).as_u16().to_string(),
        member("type"),
        member("code"),
        retry.unwrap_or_else(|| "–".to_owned()),
    ])
}

#[test]
fn the_page_of_problems_lists_every_kind() {
    let sections: String = RetryAdvice::ALL.into_iter().map(section).collect();
    let head = ["problem", "status", "`error.type`", "`error.code`", "`Stripe-Should-Retry`"];
    let stripe = table(head, ProblemKind::ALL.into_iter().filter_map(stripe));
    assert_page("problems.md", &format!("{HEAD}{sections}{STRIPE}{stripe}"));
}

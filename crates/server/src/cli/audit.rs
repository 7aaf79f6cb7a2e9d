//! `semel audit`: finds the endpoints of an OpenAPI document without rules for retries. It calls the crate
//! `semel-verify`.

use anyhow::Context;
use semel_verify::audit::{AuditOptions, LeftOut, audit, read_text};

use super::{CommandResult, OutputFlags, say, show};

/// The command line of `semel audit`.
#[derive(Debug, clap::Args)]
#[command(
    about = "Find the endpoints of an OpenAPI document that do not declare how to retry them",
    long_about = "Reads an OpenAPI document (3.0, 3.1, 3.2, or Swagger 2.0, in YAML or JSON) and lists \
        every endpoint that changes state, with what it declares about retries. Nothing is sent \
        anywhere.\n\n\
        Each endpoint must declare five things:\n\
        - key: a header parameter Idempotency-Key, of the operation or of its path, or a key by another \
        name: X-Idempotency-Key, PayPal-Request-Id, a member idempotency_key or idempotencyKey of the body, \
        or one that --key names. It may be optional, which is noted.\n\
        - 400: the answer to a missing or malformed key.\n\
        - 409: the answer to a retry while the first request still runs.\n\
        - 422: the answer to a key that was used with another request. The one that FastAPI declares by \
        itself, for requests that do not validate, does not count.\n\
        - expiry: the time for which a key is kept. OpenAPI has no field for it; any of these is enough, \
        and the first counts: the extension `x-idempotency-ttl: 24h`, on the operation, its key parameter, \
        its path or the whole document; a response header Idempotency-Expires on a 2xx answer; or a \
        sentence such as \"Keys expire after 24 hours.\" in the description of the key parameter.\n\n\
        Answers must be named: `4XX` and `default` do not say what a client is to do, and are only \
        noted.\n\n\
        POST and PATCH change state, and so does any method that no registry calls idempotent. PUT and \
        DELETE may be sent twice by the definition of HTTP: they are listed if they declare the key, or \
        with --all-methods. GET and its like never are, nor are webhooks and callbacks, which others \
        receive.\n\n\
        References within the document are followed. Other documents are not read: what they declare counts \
        as not declared, and a note says so. Bundle such documents into one first.\n\n\
        25 endpoints or more are shown in groups: by the first tag of each, or else by the beginning of its \
        path.",
    after_help = "Example of an endpoint that declares everything:\n\n  \
        paths:\n    \
        /payments:\n      \
        post:\n        \
        x-idempotency-ttl: 24h\n        \
        parameters:\n          \
        - {name: Idempotency-Key, in: header, required: true, schema: {type: string}}\n        \
        responses:\n          \
        '201': {description: The payment was made}\n          \
        '400': {description: The key is missing or malformed}\n          \
        '409': {description: The first request still runs}\n          \
        '422': {description: The key was used with another request}\n\n\
        Examples:\n  \
        semel audit openapi.yaml\n  \
        semel audit openapi.yaml --ignore 'POST /login' --exclude 'POST */search'\n  \
        semel audit openapi.yaml --key X-Request-Token\n  \
        curl -s http://127.0.0.1:3000/openapi.json | semel audit - --json\n\n\
        Exit codes: 0 every endpoint declares everything, or there is none; 1 one does not; 2 wrong use, or the \
        document cannot be read."
)]
pub(super) struct AuditArgs {
    #[arg(value_name = "FILE", help = "The document; `-` reads the standard input")]
    file: String,
    #[arg(
        long,
        value_name = "METHOD PATH",
        help = "An endpoint that needs no key, written as in the document; may be repeated"
    )]
    ignore: Vec<String>,
    #[arg(
        long,
        value_name = "PATTERN",
        help = "Endpoints that need no key, such as searches by POST: a path, or a method and a path, where `*` stands \
                for any text; may be repeated"
    )]
    exclude: Vec<String>,
    #[arg(
        long,
        value_name = "NAME",
        help = "Another name of the key, of a header or of a member of the body; may be repeated"
    )]
    key: Vec<String>,
    #[arg(long, help = "Also audit PUT, DELETE and other methods that are idempotent by definition")]
    all_methods: bool,
    #[command(flatten)]
    output: OutputFlags,
}

pub(super) fn run(args: &AuditArgs) -> anyhow::Result<CommandResult> {
    let file = args.file.as_str();
    let ignored = args.ignore.iter().map(|text| LeftOut::named(text));
    let left_out = ignored.chain(args.exclude.iter().map(|text| LeftOut::pattern(text)));
    let options = AuditOptions {
        left_out: left_out.collect::<Result<_, _>>()?,
        key_names: args.key.iter().map(String::as_str).collect(),
        all_methods: args.all_methods,
    };
    let text = read_text(file)?;
    let shown = if file == "-" { "the standard input" } else { file };
    let report = audit(&text, &options).with_context(|| shown.to_owned())?;
    if args.output.json {
        say(format!("{:#}", report.to_json()));
    } else {
        show(report.to_text().trim_end());
    }
    Ok(if report.ok() { CommandResult::Yes } else { CommandResult::No })
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    /// Compares the tables of IANA's registry in the gateway and in the audit.
    #[test]
    fn the_audit_lists_the_methods_that_the_gateway_protects() {
        let methods = "GET HEAD POST PUT DELETE CONNECT OPTIONS TRACE PATCH QUERY ACL BASELINE-CONTROL BIND CHECKIN CHECKOUT COPY \
             LABEL LINK LOCK MERGE MKACTIVITY MKCALENDAR MKCOL MKREDIRECTREF MKWORKSPACE MOVE ORDERPATCH PRI PROPFIND \
             PROPPATCH REBIND REPORT SEARCH UNBIND UNCHECKOUT UNLINK UNLOCK UPDATE UPDATEREDIRECTREF VERSION-CONTROL \
             PURGE post";
        for name in methods.split_whitespace() {
            let text = format!("openapi: 3.2.0\npaths: {{/a: {{additionalOperations: {{{name}: {{}}}}}}}}");
            let report = audit(&text, &AuditOptions::default()).expect("it is read").to_json();
            let listed = report["endpoints"].as_array().is_some_and(|endpoints| !endpoints.is_empty());
            let method = Method::from_bytes(name.as_bytes()).expect("it is a method");
            assert_eq!(listed, semel_core::method::is_command(&method), "{name}");
        }
    }
}

//! `semel verify`: tests an HTTP command endpoint from outside. It calls the crate `semel-verify`.

use std::path::PathBuf;

use anyhow::{Context, bail};
use semel_outgoing::{Address, AddressError, Trust};
use semel_settings::{parse_duration, redact};
use semel_verify::{AnswerProfile, VerifyOptions, VerifySettings};

use super::{CommandResult, OutputFlags, say, show};

/// The command line of `semel verify`.
#[derive(Debug, clap::Args)]
#[command(
    about = "Test from outside whether an HTTP command endpoint is safe to retry",
    long_about = "Sends a command to an HTTP endpoint the way networks and clients do: twice, twenty times \
        at once, hung up in the middle, re-spelled, changed, under another caller's name. Then it says, \
        rule by rule and with the evidence, whether the endpoint keeps the promises of an Idempotency-Key. \
        The endpoint may be anything that speaks HTTP; it need not be Semel.\n\n\
        The command REALLY RUNS: about ten times where the rules are kept, and up to sixty times where keys \
        are ignored. Use an endpoint where that does no harm, a body that may be sent many times, and a \
        moment without other traffic. Keys are random and fresh.\n\n\
        Levels are ours. A `must` is broken by a second execution, or by an answer that belongs to another \
        command or another caller: money is lost. A `should` is about codes, shapes and headers: clients \
        are left to guess. A rule that cannot be judged is `not tried`, and says why; nothing is \
        guessed.\n\n\
        Executions are counted by --count-url, and by what the answers name: the Location header, the \
        member `id` of a JSON body, or the whole body, whichever differs between two commands. With \
        neither, executions cannot be counted. A command whose client hung up can only be judged with \
        --count-url, since its answer is lost.",
    after_help = "Examples:\n  \
        semel verify --url http://127.0.0.1:8080/payments --body payment.json\n  \
        semel verify --url https://shop.internal/payments --body payment.json --ca internal-ca.crt\n  \
        semel verify --url http://127.0.0.1:8080/payments --body payment.json \\\n      \
        --header 'Authorization: Bearer alice' --other-header 'Authorization: Bearer bob' \\\n      \
        --count-url http://127.0.0.1:8080/payments/count\n\n\
        Exit codes: 0 every must that could be tried holds, 1 a must is broken, 2 wrong use, or the endpoint \
        cannot be reached or refuses the command itself."
)]
pub(super) struct VerifyArgs {
    #[arg(long, value_name = "URL", help = "Address that gets the command by POST: http:// or https://")]
    url: String,
    #[arg(
        long,
        value_name = "FILE",
        help = "The command, as the endpoint accepts it; unless it is JSON, give its Content-Type with --header"
    )]
    body: PathBuf,
    #[arg(
        long,
        value_name = "NAME: VALUE",
        help = "Header field of every request, such as credentials; may be repeated"
    )]
    header: Vec<String>,
    #[arg(
        long,
        value_name = "NAME: VALUE",
        help = "Header field of another caller in its place; tests that callers are kept apart"
    )]
    other_header: Vec<String>,
    #[arg(
        long,
        value_name = "URL",
        help = "Address that answers GET with the number of executions: a number, or JSON with one number"
    )]
    count_url: Option<String>,
    #[arg(
        long,
        value_name = "NAME",
        default_value = "ietf",
        help = "Expected answers: those of the IETF draft, or of Stripe (400 for a reused key, {\"error\": \
                …})"
    )]
    profile: ProfileName,
    #[command(flatten)]
    output: OutputFlags,
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "insecure",
        help = "With https://: the authorities to trust, in PEM, instead of the system's"
    )]
    ca: Option<PathBuf>,
    #[arg(
        long,
        help = "With https://: check NO certificate. An attacker on the network can read and change everything: for test servers only"
    )]
    insecure: bool,
    #[arg(
        long,
        value_name = "TIME",
        default_value = "10s",
        help = "Timeout of one request, from 100ms to 60s"
    )]
    timeout: String,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum ProfileName {
    Ietf,
    Stripe,
}

pub(super) fn run(args: &VerifyArgs) -> anyhow::Result<CommandResult> {
    let options = VerifyOptions::new(settings(args)?)?;
    for warning in options.warnings() {
        eprintln!("warning: {warning}");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report = runtime.block_on(semel_verify::verify(&options))?;
    if args.output.json {
        say(format!("{:#}", report.to_json()));
    } else {
        let colour = crate::terminal::colours(&std::io::stdout());
        show(report.to_text(colour).trim_end());
    }
    Ok(if report.holds() { CommandResult::Yes } else { CommandResult::No })
}

fn settings(args: &VerifyArgs) -> anyhow::Result<VerifySettings> {
    Ok(VerifySettings {
        timeout: parse_duration(&args.timeout).context("--timeout wants a time, such as 10s")?,
        url: address(&args.url)?,
        count_url: args.count_url.as_deref().map(address).transpose()?,
        body: args.body.clone(),
        headers: args.header.clone(),
        other_headers: args.other_header.clone(),
        profile: match args.profile {
            ProfileName::Ietf => AnswerProfile::Ietf,
            ProfileName::Stripe => AnswerProfile::Stripe,
        },
        trust: if args.insecure { Trust::Insecure } else { args.ca.clone().into() },
    })
}

/// Reads an `http://` or `https://` URL. The error for one without a scheme suggests the scheme.
fn address(text: &str) -> anyhow::Result<Address> {
    let prefixed = || format!("http://{text}").parse::<Address>();
    let credentials = "give credentials with --header, not in the URL";
    match text.parse::<Address>() {
        Ok(address) => Ok(address),
        Err(AddressError::Credentials) => bail!(credentials),
        Err(error) if text.contains("://") => bail!("{:?}: {error}", redact(text)),
        Err(error) => match prefixed() {
            Ok(address) => bail!("{text:?}: {}: write {address}", AddressError::Scheme),
            Err(AddressError::Credentials) => bail!(credentials),
            Err(_) => bail!("{:?}: {error}", redact(text)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_an_http_or_https_url() {
        for text in ["http://127.0.0.1:8080/payments?x=1", "http://example.com/", "https://[::1]:99/"] {
            assert_eq!(address(text).expect("it is one").to_string(), text);
        }
    }

    #[test]
    fn other_urls_are_refused_with_the_reason() {
        let why = |text: &str| format!("{:#}", address(text).expect_err("it is refused"));
        assert!(why("http://alice:secret@example.com/").contains("--header"));
        for text in ["", "/payments", "ftp://example.com/", "http://", "example.com", "http://x:99999/"] {
            assert!(address(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_url_without_its_scheme_is_shown_with_it() {
        for (text, right) in [
            ("127.0.0.1:8080/payments", "write http://127.0.0.1:8080/payments"),
            ("localhost:8080", "write http://localhost:8080"),
            ("shop.internal", "write http://shop.internal"),
        ] {
            let why = format!("{:#}", address(text).expect_err("it is refused"));
            assert!(why.contains("does not begin with http:// or https://") && why.contains(right), "{why}");
        }
    }

    #[test]
    fn no_refusal_shows_a_password() {
        for text in [
            "alice:hunter2@example.com",
            "alice:hunter2@example.com/payments",
            "https://alice:hunter2@example.com/",
            "ftp://alice:hunter2@example.com/",
            "http://alice:hunter2@[::1/",
            "http://alice:hunter2@example.com/",
        ] {
            let why = format!("{:#}", address(text).expect_err("it is refused"));
            assert!(!why.contains("hunter2"), "{why}");
        }
    }
}

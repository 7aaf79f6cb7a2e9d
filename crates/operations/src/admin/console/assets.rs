//! Shell of the console and what it loads: the same for every caller, and without data.

use std::fmt::Write as _;
use std::sync::LazyLock;

use askama::Template;
use http::{HeaderName, HeaderValue, StatusCode, header};
use semel_core::Problem;
use sha2::{Digest, Sha256};

use super::view::html;
use crate::admin::call::{AdminAnswer, AdminCall};

const STYLE: &str = include_str!("assets/console.css");
const SCRIPT: &str = include_str!("assets/console.js");
const ICON: &str = include_str!("assets/icon.svg");

/// Policy of the shell: it loads its own files only, sends no form, and is in no frame. HTML comes into the page through
/// one function of the script.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'none'; base-uri 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types semel-fragment";

/// Names this version of the assets, so that a browser keeps them until they change.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let digest = [STYLE, SCRIPT, ICON].iter().fold(Sha256::new(), |digest, asset| digest.chain_update(asset));
    digest.finalize().iter().take(6).fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
});

#[derive(Template)]
#[template(path = "shell.html")]
struct Shell<'a> {
    version: &'a str,
}

pub(super) async fn shell(_: AdminCall) -> Result<AdminAnswer, Problem> {
    let mut answer = html(&Shell { version: &VERSION });
    answer.headers.extend([
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
    ]);
    Ok(answer)
}

pub(super) async fn style(call: AdminCall) -> Result<AdminAnswer, Problem> {
    Ok(asset(&call, "text/css; charset=utf-8", STYLE))
}

pub(super) async fn script(call: AdminCall) -> Result<AdminAnswer, Problem> {
    Ok(asset(&call, "text/javascript; charset=utf-8", SCRIPT))
}

pub(super) async fn icon(call: AdminCall) -> Result<AdminAnswer, Problem> {
    Ok(asset(&call, "image/svg+xml", ICON))
}

/// Returns an asset. A browser may keep it if it was asked for by this version.
fn asset(call: &AdminCall, content_type: &'static str, content: &'static str) -> AdminAnswer {
    let mut answer = AdminAnswer { content_type, ..AdminAnswer::text(StatusCode::OK, content) };
    if call.query.get("v").as_ref() == Some(&*VERSION) {
        let forever = HeaderValue::from_static("public, max-age=31536000, immutable");
        answer.headers.push((header::CACHE_CONTROL, forever));
    }
    answer
}

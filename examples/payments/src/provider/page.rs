//! `GET /`: the ledger as a table and the switches as check boxes, for people. `page/script.js` keeps it current.
//!
//! Text from clients is escaped here, and the content security policy allows only our own script.

use std::fmt::Write;

use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName};
use axum::response::{Html, IntoResponse};
use serde_json::Value;

use super::Provider;
use super::entries::{LATEST, Overview};
use super::refusal::Refusal;
use super::switches::{Setting, Switch, Switches};

const POLICY: &str = "default-src 'none'; connect-src 'self'; img-src data:; script-src 'self'; style-src 'self'; \
                      form-action 'none'; frame-ancestors 'none'; base-uri 'none'";

pub(super) async fn show(State(provider): State<Provider>) -> Result<impl IntoResponse, Refusal> {
    let overview = provider.ledger.overview().await?;
    let page = render(&overview, &provider.switches());
    Ok(([(CONTENT_SECURITY_POLICY, POLICY), (CACHE_CONTROL, "no-store")], Html(page)))
}

pub(super) async fn style() -> impl IntoResponse {
    file("text/css; charset=utf-8", include_str!("page/style.css"))
}

pub(super) async fn script() -> impl IntoResponse {
    file("text/javascript; charset=utf-8", include_str!("page/script.js"))
}

fn file(content_type: &'static str, text: &'static str) -> impl IntoResponse {
    ([(CONTENT_TYPE, content_type), (HeaderName::from_static("x-content-type-options"), "nosniff")], text)
}

fn render(overview: &Overview, switches: &Switches) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Payment provider</title>\n<link rel=\"icon\" href=\"data:,\">\n\
         <link rel=\"stylesheet\" href=\"/style.css\">\n<script src=\"/script.js\" defer></script>\n</head>\n<body>\n\
         <header><h1>Payment provider</h1><p>It takes no money. Its ledger and its bad days.</p></header>\n\
         <main>\n{}{}</main>\n</body>\n</html>\n",
        ledger(overview),
        form(switches)
    )
}

fn ledger(overview: &Overview) -> String {
    let mut rows = String::new();
    for (charge, webhook) in &overview.latest {
        let _ = writeln!(
            rows,
            "<tr><td><time>{at}</time></td><td class=\"reference\">{reference}</td>\
             <td class=\"amount\">{amount} {currency}</td><td><span class=\"{status}\">{status}</span></td>\
             <td>{webhook}</td><td><a href=\"/charges/{id}\"><code>{id}</code></a></td></tr>",
            at = escaped(&charge.created_at),
            reference = escaped(&charge.reference),
            amount = charge.amount,
            currency = escaped(&charge.currency),
            status = charge.status.name(),
            webhook = escaped(webhook.as_deref().unwrap_or("none")),
            id = escaped(&charge.id),
        );
    }
    if rows.is_empty() {
        rows.push_str("<tr><td colspan=\"6\" class=\"empty\">Nothing was charged yet.</td></tr>\n");
    }
    format!(
        "<section id=\"ledger\">\n<h2>Ledger</h2>\n<p><strong>{}</strong> captured, <strong>{}</strong> declined; the \
         latest {LATEST} are shown. All of them: <a href=\"/ledger\">lines of JSON</a>, \
         <a href=\"/ledger.csv\">CSV</a>.</p>\n<div class=\"table\"><table>\n<thead><tr><th>When</th><th>Reference</th>\
         <th class=\"amount\">Amount in cents</th><th>Status</th><th>Webhook</th><th>Charge</th></tr></thead>\n<tbody>\n\
         {rows}</tbody></table></div>\n</section>\n",
        overview.captured, overview.declined,
    )
}

fn form(switches: &Switches) -> String {
    let (slow_ms, slow) = switches.slow();
    let wait = format!(
        "<label>ms <input name=\"ms\" type=\"number\" min=\"1\" max=\"30000\" value=\"{slow_ms}\"></label>"
    );
    let mut fields = field("slow", "waits before it answers", slow, &wait);
    for (switch, name) in Switch::ALL {
        fields.push_str(&field(name, switch.meaning(), switches.get(switch), ""));
    }
    format!(
        "<section id=\"switches\">\n<h2>Bad days</h2>\n<p>Each for the next few requests, or for all.</p>\n\
         <p id=\"said\" role=\"status\"></p>\n<form>\n{fields}</form>\n\
         <noscript>Without JavaScript, use <code>PUT /switches</code>.</noscript>\n</section>\n"
    )
}

/// Name and meaning are our own; the text contains nothing from clients.
fn field(name: &str, meaning: &str, setting: Setting, more: &str) -> String {
    let checked = if setting == Setting::Off { "" } else { " checked" };
    let next = match setting.show() {
        Value::Number(next) => next.to_string(),
        _ => String::new(),
    };
    format!(
        "<fieldset data-switch=\"{name}\">\n<label class=\"switch\"><input type=\"checkbox\" name=\"{name}\"{checked}>\
         <code>{name}</code> <span>{meaning}</span></label>\n<div class=\"bounds\">{more}<label>next <input name=\"next\" \
         type=\"number\" min=\"1\" max=\"999999\" placeholder=\"all\" value=\"{next}\"></label></div>\n</fieldset>\n"
    )
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_characters_of_html_are_escaped() {
        assert_eq!(
            escaped("<a href='x' id=\"y\">&amp;</a>"),
            "&lt;a href=&#39;x&#39; id=&quot;y&quot;&gt;&amp;amp;&lt;/a&gt;"
        );
    }
}

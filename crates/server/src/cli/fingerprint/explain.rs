//! Hashed parts of a request, for people and for programs. `semel_core` decides on the parts and their form;
//! this module only shows them.

use std::borrow::Cow;

use semel_core::fingerprint::{CanonicalBody, Fingerprint, FingerprintFields, WhyRaw};
use semel_core::{FingerprintInput, JsonPointer};
use serde_json::{Value, json};

use super::shown::{cut, cut_pointer, excerpt, line, visible};

/// Request with its hashed parts.
pub(super) struct Explained<'a> {
    pub(super) input: FingerprintInput<'a>,
    pub(super) fields: FingerprintFields<'a>,
    pub(super) fingerprint: Fingerprint,
}

impl<'a> Explained<'a> {
    pub(super) fn of(input: FingerprintInput<'a>) -> Explained<'a> {
        Explained { input, fields: input.fields(), fingerprint: input.fingerprint() }
    }

    /// Returns the fields before the body, in the order of the hash.
    pub(super) fn head(&self) -> [(&'static str, Option<Cow<'_, str>>); 5] {
        let text = String::from_utf8_lossy;
        [
            ("method", Some(self.fields.method.into())),
            ("path", Some(Cow::Borrowed(&*self.fields.path))),
            ("query", self.fields.query.map(Cow::Borrowed)),
            ("content type", self.fields.content_type.as_deref().map(text)),
            ("content encoding", self.fields.content_encoding.map(text)),
        ]
    }

    /// Returns each excluded pointer, with true if the body has a value there.
    pub(super) fn excluded(&self) -> impl Iterator<Item = (&'a JsonPointer, bool)> + '_ {
        let whole = whole(self.input);
        self.input.exclude.iter().map(move |pointer| {
            let without = FingerprintInput { exclude: std::slice::from_ref(pointer), ..self.input };
            (pointer, without.canonical_body() != whole)
        })
    }

    /// Describes the form of the hashed body, and its reason.
    pub(super) fn form(&self) -> String {
        let sent = self.input.body.len();
        match &self.fields.body {
            CanonicalBody::Json(canonical) => {
                format!("canonical JSON, {} bytes of {sent} as sent", canonical.len())
            }
            CanonicalBody::Form(pairs) => {
                format!("the decoded pairs of a form, {} bytes of {sent} as sent", pairs.len())
            }
            CanonicalBody::Multipart(parts) => {
                format!("the fields and digests of its parts, {} bytes of {sent} as sent", parts.len())
            }
            CanonicalBody::Raw(_, why) => format!("{sent} bytes as sent, since {why}{}", self.hint(*why)),
        }
    }

    /// Returns a hint on a missing content type, which makes white space count.
    fn hint(&self, why: WhyRaw) -> &'static str {
        let as_json = FingerprintInput { content_type: Some(b"application/json"), ..self.input };
        let is_json = matches!(as_json.canonical_body(), CanonicalBody::Json(_));
        if why == WhyRaw::OtherType && is_json {
            " (the body reads as JSON: give --content-type application/json if it is sent so)"
        } else {
            ""
        }
    }

    pub(super) fn to_text(&self) -> String {
        let mut lines = vec![line("fingerprint", &self.fingerprint.to_string())];
        for (name, value) in self.head() {
            let mut told =
                value.as_deref().map_or_else(|| "(none)".to_owned(), |value| visible(&cut(value, 0)));
            if name == "content type"
                && let Some(sent) =
                    self.input.content_type.filter(|sent| self.fields.content_type.as_deref() != Some(sent))
            {
                told.push_str(&format!(", sent as {}", visible(&cut(&String::from_utf8_lossy(sent), 0))));
            }
            lines.push(line(name, &told));
        }
        lines.push(line("body", &self.form()));
        let bytes = self.fields.body.as_bytes();
        if !bytes.is_empty() {
            lines.push(line("", &visible(&excerpt(bytes))));
        }
        for (pointer, present) in self.excluded() {
            let told = if present { "left out" } else { "nothing to leave out: the body has no such member" };
            lines.push(line("excluded", &format!("{}: {told}", visible(&cut_pointer(&pointer.to_string())))));
        }
        lines.join("\n")
    }

    pub(super) fn to_json(&self) -> Value {
        let [method, path, query, content_type, content_encoding] = self.head().map(|(_, value)| value);
        let (form, why) = match &self.fields.body {
            CanonicalBody::Json(_) => ("canonical-json", None),
            CanonicalBody::Form(_) => ("form", None),
            CanonicalBody::Multipart(_) => ("multipart", None),
            CanonicalBody::Raw(_, why) => ("raw", Some(why.to_string())),
        };
        let bytes = self.fields.body.as_bytes();
        let excluded = |(pointer, present): (&JsonPointer, bool)| json!({ "pointer": pointer.to_string(), "present": present });
        json!({
            "fingerprint": self.fingerprint.to_string(),
            "method": method,
            "path": path,
            "query": query,
            "contentType": content_type,
            "contentEncoding": content_encoding,
            "body": {
                "form": form,
                "why": why,
                "bytes": bytes.len(),
                "bytesAsSent": self.input.body.len(),
                "excerpt": excerpt(bytes),
            },
            "excluded": self.excluded().map(excluded).collect::<Vec<_>>(),
        })
    }
}

/// Returns the body as it would be hashed without exclusions.
pub(super) fn whole(input: FingerprintInput<'_>) -> CanonicalBody<'_> {
    FingerprintInput { exclude: &[], ..input }.canonical_body()
}

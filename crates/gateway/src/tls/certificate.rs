//! Contents of a certificate: its names and its expiry. rustls has decided on its trust before.

use anyhow::Context;
use semel_core::Timestamp;
use x509_cert::der::asn1::{Any, Ia5StringRef, ObjectIdentifier, PrintableStringRef, Utf8StringRef};
use x509_cert::der::{Decode, Tag, Tagged};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

/// Object identifiers of subject parts (RFC 4519).
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
const ORGANIZATION: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.10");
const ORGANIZATIONAL_UNIT: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.11");

/// Names in a certificate, in its order. A name that is not plain text is `None`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) common_names: Vec<Option<String>>,
    pub(crate) organizations: Vec<Option<String>>,
    pub(crate) organizational_units: Vec<Option<String>>,
    pub(crate) dns_names: Vec<Option<String>>,
    pub(crate) uris: Vec<Option<String>>,
    pub(crate) emails: Vec<Option<String>>,
}

/// Expiry and names of a certificate.
pub(crate) struct Certificate {
    pub(crate) ends: Timestamp,
    pub(crate) names: Names,
}

impl Certificate {
    /// Reads a certificate.
    ///
    /// # Errors
    /// Fails if it is no certificate.
    pub(crate) fn read(der: &[u8]) -> anyhow::Result<Certificate> {
        let certificate = x509_cert::Certificate::from_der(der).context("it cannot be read")?;
        let certificate = certificate.tbs_certificate();
        let subject = |part: ObjectIdentifier| {
            let own = certificate.subject().iter().filter(|attribute| attribute.oid == part);
            own.map(|attribute| text(&attribute.value)).collect()
        };
        let alternatives =
            certificate.get_extension::<SubjectAltName>().context("its names cannot be read")?;
        let alternatives = alternatives.map(|(_, names)| names.0).unwrap_or_default();
        let alternative = |of: fn(&GeneralName) -> Option<&str>| {
            alternatives.iter().filter_map(of).map(|name| Some(name.to_owned())).collect()
        };
        let names = Names {
            common_names: subject(COMMON_NAME),
            organizations: subject(ORGANIZATION),
            organizational_units: subject(ORGANIZATIONAL_UNIT),
            dns_names: alternative(|name| match name {
                GeneralName::DnsName(name) => Some(name.as_str()),
                _ => None,
            }),
            uris: alternative(|name| match name {
                GeneralName::UniformResourceIdentifier(name) => Some(name.as_str()),
                _ => None,
            }),
            emails: alternative(|name| match name {
                GeneralName::Rfc822Name(name) => Some(name.as_str()),
                _ => None,
            }),
        };
        let ends = Timestamp::from_millis(0).plus(certificate.validity().not_after.to_unix_duration());
        Ok(Certificate { ends, names })
    }
}

/// Returns the text of a value whose encoding has one spelling per letter.
fn text(value: &Any) -> Option<String> {
    let text = match value.tag() {
        Tag::Utf8String => Utf8StringRef::try_from(value).ok()?.as_str(),
        Tag::PrintableString => PrintableStringRef::try_from(value).ok()?.as_str(),
        Tag::Ia5String => Ia5StringRef::try_from(value).ok()?.as_str(),
        _ => return None,
    };
    Some(text.to_owned())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const UTF8: u8 = 12;
    const PRINTABLE: u8 = 19;
    const BMP: u8 = 30;
    const SEQUENCE: u8 = 0x30;
    const SET: u8 = 0x31;

    fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
        let content = parts.concat();
        let length = u16::try_from(content.len()).expect("tests are short").to_be_bytes();
        let length = match length {
            [0, short @ 0..128] => vec![short],
            [0, long] => vec![0x81, long],
            [high, low] => vec![0x82, high, low],
        };
        [&[tag][..], &length, &content].concat()
    }

    /// Returns one part of a subject: `CN` is 3, `O` is 10.
    fn part(number: u8, tag: u8, text: &[u8]) -> Vec<u8> {
        let pair = element(SEQUENCE, &[&[6, 3, 0x55, 4, number], &element(tag, &[text])]);
        element(SET, &[&pair])
    }

    /// Returns an unsigned certificate with these parts of a subject and these alternative names.
    fn certificate(subject: &[Vec<u8>], alternatives: &[Vec<u8>]) -> Vec<u8> {
        let all = |parts: &[Vec<u8>]| element(SEQUENCE, &parts.iter().map(Vec::as_slice).collect::<Vec<_>>());
        // ecdsa-with-SHA256
        let algorithm = element(SEQUENCE, &[&[6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2]]);
        let time = |text: &[u8]| element(23, &[text]);
        let names = element(SEQUENCE, &[&[6, 3, 0x55, 0x1d, 17], &element(4, &[&all(alternatives)])]);
        let body = element(
            SEQUENCE,
            &[
                &element(0xa0, &[&[2, 1, 2]]),
                &[2, 1, 1],
                &algorithm,
                &all(&[part(3, UTF8, b"authority")]),
                &element(SEQUENCE, &[&time(b"260101000000Z"), &time(b"270101000000Z")]),
                &all(subject),
                &element(SEQUENCE, &[&algorithm, &[3, 2, 0, 0]]),
                &element(0xa3, &[&element(SEQUENCE, &[&names])]),
            ],
        );
        element(SEQUENCE, &[&body, &algorithm, &[3, 2, 0, 0]])
    }

    /// Returns the names of a certificate with this common name.
    pub(crate) fn names(common_name: &[u8]) -> Names {
        let subject = [part(10, PRINTABLE, b"acme"), part(3, UTF8, common_name)];
        Certificate::read(&certificate(&subject, &[])).expect("it is a certificate").names
    }

    fn some(names: &[&str]) -> Vec<Option<String>> {
        names.iter().map(|name| Some((*name).to_owned())).collect()
    }

    #[test]
    fn names_of_a_certificate_are_read_verbatim() {
        let both = element(SET, &[&part(3, UTF8, b"two")[2..], &part(3, PRINTABLE, b"three")[2..]]);
        let subject = [part(10, PRINTABLE, b"acme"), part(3, UTF8, "\u{e9}".as_bytes()), both];
        let alternatives =
            [element(0x82, &[b"a.example"]), element(0x86, &[b"spiffe://a"]), element(0x81, &[b"a@b"])];
        let read = Certificate::read(&certificate(&subject, &alternatives)).expect("it is a certificate");
        assert_eq!(read.ends.to_rfc3339(), "2027-01-01T00:00:00.000Z");
        let names = read.names;
        assert_eq!(names.organizations, some(&["acme"]));
        assert_eq!(names.common_names, some(&["\u{e9}", "two", "three"]), "two in one part are two");
        assert_eq!(names.organizational_units, []);
        assert_eq!(names.dns_names, some(&["a.example"]));
        assert_eq!(names.uris, some(&["spiffe://a"]));
        assert_eq!(names.emails, some(&["a@b"]));
    }

    #[test]
    fn certificate_names_in_unsupported_or_invalid_encodings_have_no_text() {
        for (tag, text) in [(BMP, &b"\0a"[..]), (UTF8, b"\xff"), (PRINTABLE, b"a@b"), (4, b"a")] {
            let read = Certificate::read(&certificate(&[part(3, tag, text)], &[]));
            let names = read.expect("it is a certificate").names;
            assert_eq!(names.common_names, [None], "{tag}");
        }
    }

    #[test]
    fn bytes_that_are_no_certificate_are_refused() {
        let good = certificate(&[part(3, UTF8, b"a")], &[]);
        assert!(Certificate::read(&good).is_ok());
        assert!(Certificate::read(&good[..good.len() - 1]).is_err());
        assert!(Certificate::read(&[&good[..], b"x"].concat()).is_err());
        assert!(Certificate::read(b"").is_err());
        let not_ascii = certificate(&[], &[element(0x86, &[b"spiffe://\xff"])]);
        assert!(Certificate::read(&not_ascii).is_err(), "names that cannot be read are not passed over");
        for cut in 0..good.len() {
            let _ = Certificate::read(&good[..cut]);
            let mut changed = good.clone();
            changed[cut] ^= 0x41;
            let _ = Certificate::read(&changed);
        }
    }
}

//! Parts that all pages share: fragments as answers, numbers and times as people read them.

use askama::Template;
use http::StatusCode;
use http::header::{HeaderName, HeaderValue, VARY};
use semel_core::{Problem, Timestamp};
use semel_settings::Role;

use crate::admin::call::{AdminAnswer, AdminCall};

/// Number of rows that a list adds at a time.
pub(super) const ROWS: usize = 100;

/// Answers with a page.
pub(super) fn html(page: &impl Template) -> AdminAnswer {
    let text = page.render().expect("a template writes to a string, which does not fail");
    let mut answer = AdminAnswer::text(StatusCode::OK, text);
    answer.content_type = "text/html; charset=utf-8";
    answer.headers.push((VARY, HeaderValue::from_static("Authorization")));
    answer
}

/// Header field by which the script knows a fragment: only what templates made may become a part of the page.
const FRAGMENT: HeaderName = HeaderName::from_static("semel-fragment");

/// Answers with a fragment.
pub(super) fn fragment(page: &impl Template) -> Result<AdminAnswer, Problem> {
    let mut answer = html(page);
    answer.headers.push((FRAGMENT, HeaderValue::from_static("1")));
    Ok(answer)
}

/// Returns true if the caller may act.
pub(super) fn acts(call: &AdminCall) -> bool {
    call.caller.role == Role::Operator
}

/// Returns every digit of a number, with commas between thousands.
pub(super) fn exact(number: impl Into<u128>) -> String {
    let digits = number.into().to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns a size in the unit that people compare, beside which a page shows the exact number.
pub(super) fn size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let step =
        (0..units.len() - 1).rev().find(|step| bytes >> (10 * (step + 1)) > 0).map_or(0, |step| step + 1);
    match step {
        0 => format!("{bytes} B"),
        step => {
            let tenths = (u128::from(bytes) * 10) >> (10 * step);
            format!("{}.{} {}", tenths / 10, tenths % 10, units[step])
        }
    }
}

/// Returns a time for the element that shows it.
pub(super) fn time(at: Timestamp) -> String {
    at.to_rfc3339()
}

/// Returns a name of the protocol as words: `timed_out` as "timed out".
pub(super) fn words(name: &str) -> String {
    name.replace(['_', '-'], " ")
}

/// Returns the query of the next page: that of this one, with the place where it ended.
pub(super) fn more(call: &AdminCall, names: &[&str], place: (&str, &str)) -> String {
    let given = names.iter().filter_map(|name| Some((*name, call.query.get(name)?)));
    let kept = given.filter(|(name, _)| *name != place.0).chain([(place.0, place.1.to_owned())]);
    let pairs: Vec<String> = kept.map(|(name, value)| format!("{name}={}", encoded(&value))).collect();
    pairs.join("&")
}

/// Returns a text as a part of a path or a query.
pub(super) fn encoded(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_digit_of_a_number_is_shown() {
        for (number, shown) in [
            (0_u64, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (9_007_199_254_740_993, "9,007,199,254,740,993"),
            (u64::MAX, "18,446,744,073,709,551,615"),
        ] {
            assert_eq!(exact(number), shown);
        }
    }

    #[test]
    fn a_size_is_shown_in_the_largest_unit_that_it_fills() {
        for (bytes, shown) in
            [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1_572_864, "1.5 MiB"), (u64::MAX, "15.9 EiB")]
        {
            assert_eq!(size(bytes), shown);
        }
    }
}

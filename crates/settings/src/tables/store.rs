//! `store`: the place of records.

use semel_core::StoreLocation;
use semel_core::location::InvalidLocation;

use crate::engine::addresses::AddressChecks;
use crate::engine::kind::{ValueKind, ValueRefusal, quoted};
use crate::engine::nearest::nearest;

impl ValueKind for StoreLocation {
    type Value = StoreLocation;

    fn expected() -> String {
        "\"memory:\", \"sqlite:PATH\" or \"postgres://…\"".to_owned()
    }

    fn parse(text: &str) -> Result<StoreLocation, ValueRefusal> {
        text.parse().map_err(|invalid| match invalid {
            InvalidLocation::UnknownScheme => {
                meant(text).map_or(ValueRefusal::Unexpected, ValueRefusal::DidYouMean)
            }
            InvalidLocation::Reserved(_) => ValueRefusal::Reserved,
            InvalidLocation::SqliteInMemory => ValueRefusal::DidYouMean("memory:".to_owned()),
            InvalidLocation::Malformed(why) => ValueRefusal::Because(why),
        })
    }

    fn check_address(value: &StoreLocation, checks: &AddressChecks) -> Result<(), ValueRefusal> {
        match value {
            StoreLocation::Postgres(url) => {
                let Ok(text) = url.address::<String>();
                (checks.postgres)(&text).map_err(ValueRefusal::Because)
            }
            StoreLocation::Memory | StoreLocation::Sqlite(_) => Ok(()),
        }
    }

    fn show(value: &StoreLocation) -> Option<String> {
        Some(quoted(&value.to_string()))
    }
}

/// Returns the location that the text probably stands for.
fn meant(text: &str) -> Option<String> {
    let (scheme, path) = text.split_once(':').unwrap_or((text, ""));
    let near = nearest(scheme, ["memory", "sqlite", "postgres"])?;
    Some(match near {
        "sqlite" if path.is_empty() => "sqlite:semel.db".to_owned(),
        // What follows the scheme may hold a password.
        "postgres" => "postgres://…".to_owned(),
        scheme => format!("{scheme}:{path}"),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use semel_core::redact::redact;
    use semel_stores::postgres::DatabaseAddress;

    use super::*;
    use crate::tests::CHECKS;

    proptest! {
        /// Whatever separates its parts: what is said about an address that cannot be read, or can, shows none of them.
        #[test]
        fn no_part_of_a_password_is_shown(
            separators in prop::collection::vec(r#"[@/?#:&=% "'\\]{1,3}"#, 1..4),
            scheme in prop::sample::select(vec!["postgres://", "postgresql://", "postgres:/", "postgres:"]),
            rest in prop::sample::select(vec!["@db/pay", "@db:5432/pay?sslmode=require", "@db", "@", "@db:port/pay", "@db/pay?password=hunterC@hunterD"]),
        ) {
            let password = separators.iter().fold("hunterA".to_owned(), |all, separator| format!("{all}{separator}hunterB"));
            let url = format!("{scheme}semel:{password}{rest}");
            let read = StoreLocation::parse(&url);
            let shown = match read.and_then(|store| StoreLocation::check_address(&store, &CHECKS).map(|()| store)) {
                Ok(store) => format!("{store} {store:?}") + &match &store {
                    StoreLocation::Postgres(url) => url.address::<DatabaseAddress>().map_or_else(|error| error.to_string(), |address| address.describe()),
                    _ => String::new(),
                },
                Err(
                    ValueRefusal::Because(why) | ValueRefusal::ReasonFirst(why) | ValueRefusal::DidYouMean(why),
                ) => why,
                Err(ValueRefusal::Unexpected | ValueRefusal::Reserved) => String::new(),
            };
            for text in [shown, redact(&url), redact(&format!("store = \"{url}\""))] {
                prop_assert!(!text.contains("hunter"), "{text} of {url}");
            }
        }
    }
}

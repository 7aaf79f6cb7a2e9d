//! The configuration as a whole: from sources to settings, errors, warnings and origins.

use std::time::Duration;

use semel_flow::reconcile::http::{HttpLookUp, HttpLookUpError, LookUpReading};

use super::*;

mod layers;
mod limits;
mod never_panics;
mod pass;
mod paths;
mod reconcile;
mod traces;
mod warnings;
mod wrong;

/// The checks of the crates that use the addresses.
pub(crate) const CHECKS: AddressChecks = AddressChecks {
    postgres: |text| match text.parse::<semel_stores::postgres::DatabaseAddress>() {
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    },
    service: |text| match text.parse::<semel_outgoing::Address>() {
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    },
    look_up: |text| match HttpLookUp::new(text, LookUpReading::default()) {
        Ok(_) => Ok(()),
        Err(HttpLookUpError::Address(_, why)) => Err(why),
        Err(HttpLookUpError::Tls(error)) => Err(error.to_string()),
    },
};

fn load(sources: &Sources) -> Result<Loaded, Errors> {
    super::load(sources, CHECKS)
}

fn file(text: &str) -> Sources {
    Sources::new().file("semel.toml", text)
}

fn loaded(sources: &Sources) -> Loaded {
    load(sources).unwrap_or_else(|errors| panic!("it is refused:\n{errors}"))
}

fn config(text: &str) -> Config {
    loaded(&file(text)).config
}

fn refused(sources: &Sources) -> String {
    load(sources).expect_err("it is refused").to_string()
}

#[test]
fn the_maintenance_has_the_defaults_of_the_library() {
    let MaintenanceSettings { sweep_interval, reap_interval, reap_batch } = Config::default().maintenance;
    let library = semel_http::Maintenance::default();
    let maintenance =
        semel_http::Maintenance { sweep_interval, reap_interval, reap_batch, ..library.clone() };
    assert_eq!(maintenance, library);
}

#[test]
fn an_address_is_read_as_its_client_reads_it() {
    for text in [
        "http://127.0.0.1:1/keys",
        "http://[::1]/",
        "http://LOCALHOST",
        "https://10.0.0.1/a?b",
        "http://10.0.0.1?b",
        "http://localhost.example:80/",
        "https://issuer.example",
    ] {
        let ours = ServiceAddress::new(text).expect("it is an address");
        let theirs: semel_outgoing::Address = ours.address().expect("it is an address");
        assert_eq!(
            (ours.is_encrypted(), ours.is_exposed()),
            (theirs.is_encrypted(), theirs.is_exposed()),
            "{text}"
        );
        assert_eq!((ours.to_string(), ours.authority()), (theirs.to_string(), theirs.authority()), "{text}");
    }
    for text in ["", "http:// a", "keys.json", "a:80", "ftp://a"] {
        assert_eq!(ServiceAddress::new(text), None, "{text}");
    }
}

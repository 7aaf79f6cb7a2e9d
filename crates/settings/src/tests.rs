//! The configuration as a whole: from sources to settings, errors, warnings and origins.

use std::time::Duration;

use semel_http::Maintenance;

use super::*;

mod layers;
mod limits;
mod never_panics;
mod pass;
mod paths;
mod reconcile;
mod warnings;
mod wrong;

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

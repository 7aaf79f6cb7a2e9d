//! `cargo xtask hostile`: hostile clients and a hostile upstream against a gateway, case by case.

use crate::step::step;

pub(crate) fn run(arguments: &[&str]) -> Result<(), String> {
    let words = ["run", "--quiet", "--package", "semel-hostile", "--"];
    step("hostile", &[&words[..], arguments].concat(), &[])
}

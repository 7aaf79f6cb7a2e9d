//! `cargo xtask hostile`: hostile clients and a hostile upstream against a gateway, case by case.

use crate::test;

pub(crate) fn run(arguments: &[&str]) -> Result<(), String> {
    let words = ["run", "--quiet", "--package", "semel-hostile", "--"];
    test::step("hostile", &[&words[..], arguments].concat(), &[])
}

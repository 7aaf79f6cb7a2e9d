//! Checks that code compiled without the feature `fault-points` has no trace of fault points.

use std::path::Path;
use std::process::Command;

/// Compiles the crate with these arguments, and returns true if the object contains the variable's name.
fn names_the_variable(arguments: &[&str], object: &Path) -> bool {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs");
    let status = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .args(["--edition=2024", "--crate-type=lib", "--crate-name=semel_faults", "-O", "--emit=obj"])
        .args(["-C", "codegen-units=1", "-o"])
        .arg(object)
        .args(arguments)
        .arg(source)
        .status()
        .expect("the compiler runs");
    assert!(status.success(), "the crate does not compile with {arguments:?}");
    let bytes = std::fs::read(object).expect("the compiler wrote it");
    let name = semel_faults::VARIABLE.as_bytes();
    bytes.windows(name.len()).any(|window| window == name)
}

#[test]
fn fault_points_exist_only_in_a_build_with_their_feature() {
    let folder = std::env::temp_dir().join(format!("semel-faults-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    let with = ["--cfg", "feature=\"fault-points\""];
    let debug = ["-C", "debug-assertions=on"];
    let found = [&with[..], &debug[..], &[]]
        .map(|arguments| names_the_variable(arguments, &folder.join(format!("{}.o", arguments.len()))));
    std::fs::remove_dir_all(&folder).expect("the folder is ours");
    assert_eq!(found, [true, false, false]);
}

#[test]
fn every_fault_point_has_a_unique_name() {
    let mut names: Vec<&str> = semel_faults::Point::ALL.iter().map(|point| point.name()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), semel_faults::Point::ALL.len());
}

//! Determinism: a seed always gives the same run.

use std::collections::BTreeSet;
use std::process::Command;

use semel_simulate::{Options, run, run_many};

const SEEDS: u64 = 36;

#[test]
fn the_same_seed_gives_the_same_trace() {
    let options = Options { broken: None, trace: true };
    for seed in 0..3 {
        let (one, two) = (run(seed, options), run(seed, options));
        let differing = one.trace.iter().zip(&two.trace).position(|(one, two)| one != two);
        assert_eq!(differing, None, "seed {seed} differs from line {differing:?} of its trace on");
        assert_eq!(one.trace.len(), two.trace.len());
        assert_eq!(one.hash, two.hash);
        assert!(one.trace.len() > 100, "something happens");
    }
}

#[test]
fn the_same_seeds_give_the_same_hashes_on_any_number_of_threads() {
    let hash = |threads| run_many(100, SEEDS, threads, Options::default(), false).hash;
    assert_eq!(hash(1), hash(3));
}

#[test]
fn other_seeds_give_other_hashes() {
    let hashes: BTreeSet<String> = (0..SEEDS).map(|seed| run(seed, Options::default()).hash).collect();
    assert_eq!(hashes.len() as u64, SEEDS);
}

#[test]
fn other_processes_compute_the_same_hash() {
    let seen = || {
        let count = SEEDS.to_string();
        let output = Command::new(env!("CARGO_BIN_EXE_semel-simulate"))
            .args(["--from", "200", "--seeds", &count])
            .output()
            .expect("the program can be run");
        let told = String::from_utf8(output.stdout).expect("it talks to people");
        assert!(output.status.success(), "{told}");
        let line = told.lines().find(|line| line.trim_start().starts_with("hash"));
        line.and_then(|line| line.split_whitespace().last()).expect("it tells the hash").to_owned()
    };
    let here = run_many(200, SEEDS, 2, Options::default(), false).hash;
    assert_eq!((seen(), seen()), (here.clone(), here));
}

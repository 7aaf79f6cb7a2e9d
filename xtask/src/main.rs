//! The project's own commands. `cargo xtask` lists them.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line talks to people")]

mod bench;
mod browser;
mod chaos;
mod clients;
mod cluster;
mod coverage;
mod crash_matrix;
mod databases;
mod deny;
mod diagram;
mod docs;
mod fuzz;
mod hostile;
mod imports;
mod model;
mod mutants;
mod names;
mod nightly;
mod parts;
mod portable;
mod prometheus;
mod sbom;
mod simulate;
mod sources;
mod step;
mod test;
mod third_party;
mod threats;
mod tools;

use std::process::ExitCode;

const COMMANDS: &str = "\
cargo xtask COMMAND

  test            runs everything that must be green: format, lints, diagram, tests, threats, simulation, a sample of
                  the crash matrix, chaos, clients, documentation, dependencies; lists the ten slowest parts and tests at
                  the end
  check           runs the checks for each commit in two minutes: format, lints, diagram, tests that need nothing but
                  this process, a short simulation
  nightly         runs every search below in its long form, for hours; a failure does not end the run

Searches for bugs, each with a page in docs/src/explanation/:
  model           tries the protocol exhaustively, and refutes wrong ones (--quick, --only NAME, --story NAME)
  simulate        runs nodes over a simulated store, network and time, --seeds 2000 --from 0, or one --seed of an earlier
                  run with its --trace, and judges each history
  crash-matrix    runs every step of a command under every fault, on real processes, and writes the tables of
                  crash-matrix.md: --store sqlite or postgres, --step 6, --fault K; --sample runs a fixed part, and
                  writes nothing
  chaos           loads gateways while everything around them breaks, and judges the history: --store sqlite or postgres,
                  --minutes 10 or --seconds, --seed of an earlier run
  cluster         fails a PostgreSQL with Patroni and etcd over, on three nodes in network namespaces, under three gateways
                  with load, and judges the history: --faults LIST or all or sample, --failovers 50, --commands 100000,
                  --minutes, --seed of an earlier run; --asynchronous must be found to lose writes; --loopback has one
                  failover of plain replication without root
  store-chaos     kills a PostgreSQL server under load for --minutes 10, or with the --seed of an earlier run
  fuzz [TARGET]   feeds random bytes to every parser, for --seconds 60 each; --input FILE repeats one input
  hostile         sends the requests and answers of hostile clients and upstreams to a gateway, --cases 5000 or one
                  --case of an earlier --seed, --only GROUP; only accepted requests may reach the upstream, once each,
                  and every answer must reach its own client
  clients         checks the packages of the clients, and runs each client through a proxy that breaks HTTP before a real
                  gateway, --commands 2000, with the --seed of an earlier run, --only rust, typescript or python; effects
                  are counted, and broken clients must be found
  mutants [SET]   changes code in every way that cargo-mutants knows, one at a time, and lists the changes that no test
                  notices; SET is core, http or stores
  coverage        prints the share of lines of crates/core that its own tests reach

Measurement:
  bench           measures everything beside its floor and its peers, in one run, and writes bench/RESULTS.md; --quick
                  takes some minutes; or measures some sections only, and writes below target: replay, commands, stores,
                  gateway, storm, growth, size, instructions, requests, outbox; `bench capacity` counts bytes and flushes

Checks and tools:
  portable        runs the tests that send every statement to PostgreSQL, and refuses those outside of the portable subset
  threats         checks that every threat in docs/src/explanation/threats-*.md names tests that exist and run
  imports         refuses import cycles between sibling modules, in every folder of every crate
  names           refuses a type name that the product uses twice
  dependencies    checks licences, banned crates and sources against deny.toml, with cargo-deny, which it installs
                  under target if it is missing
  sbom [TARGET]   writes the parts list of the program `semel`, as CycloneDX 1.5, to target/semel.cdx.json
  diagram         draws the state machine into ARCHITECTURE.md and docs/src/explanation/state-machine.md
  diagram --check checks that the drawing is current
  docs            checks every internal link, anchor and page length of the documentation, and builds the book of docs/
                  to target/book with mdBook, which it installs under target if it is missing
  docs --check    checks only, without mdBook
  prometheus      checks alerts, their cases and the queries of the dashboard in deploy/ with promtool, which it unpacks
                  under target from Debian's package if it is missing
  databases       installs PostgreSQL and PgBouncer for tests if they are missing, and prints their paths
  browser         installs Chromium and axe-core for tests under target if they are missing, and prints their path
  third-party     installs services and clients of others (Express, FastAPI, Stripe's SDKs, gRPC) for tests under target
                  if they are missing, and prints their paths

The conformance vectors are read from the folder that SEMEL_VECTORS names; without it, those tests
report that they did not run.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        ["test"] => test::run(),
        ["check"] => test::check(),
        ["nightly"] => nightly::run(),
        ["portable"] => portable::run(),
        ["chaos", ref arguments @ ..] => chaos::run(arguments),
        ["cluster", ref arguments @ ..] => cluster::run(arguments),
        ["crash-matrix", ref arguments @ ..] => crash_matrix::run(arguments),
        ["store-chaos", ref arguments @ ..] => chaos::run_store(arguments),
        ["clients", ref arguments @ ..] => clients::run(arguments),
        ["model", ref arguments @ ..] => model::run(arguments),
        ["mutants", ref arguments @ ..] => mutants::run(arguments),
        ["bench", ref arguments @ ..] => bench::run(arguments),
        ["coverage"] => coverage::run(),
        ["simulate", ref arguments @ ..] => simulate::run(arguments),
        ["hostile", ref arguments @ ..] => hostile::run(arguments),
        ["fuzz", ref arguments @ ..] => fuzz::run(arguments),
        ["databases"] => databases::install().map(|installed| installed.describe()),
        ["browser"] => browser::install().map(|installed| installed.describe()),
        ["third-party"] => third_party::install().map(|installed| installed.describe()),
        ["dependencies"] => deny::check(),
        ["sbom"] => sbom::write(sbom::TARGET),
        ["sbom", target] => sbom::write(target),
        ["imports"] => imports::check(),
        ["names"] => names::check(),
        ["threats"] => threats::check(threats::Build::Named),
        ["diagram"] => diagram::write(),
        ["diagram", "--check"] => diagram::check(),
        ["prometheus"] => prometheus::check(),
        ["docs"] => docs::run_all(),
        ["docs", "--check"] => docs::check(),
        [] | ["help" | "--help" | "-h"] => {
            println!("{COMMANDS}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("`{}` is not a command.\n\n{COMMANDS}", arguments.join(" "));
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the workspace's root folder.
fn root() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

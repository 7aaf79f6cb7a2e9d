//! Peers: alternatives to Semel, each a server with the same handler, run from its published packages.
//!
//! `manifest` reads `bench/peers/*/peer.toml`, `install` gets the packages, `place` prepares a peer's stores (a
//! database, a Redis, a folder), and `process` starts and ends it; load tests need these four. `check` tries whether
//! responses are correct, and `report` writes that down:
//!
//! ```no_run
//! # use semel_bench::peers::{Build, Place, Settings, all, install};
//! # async fn example() -> Result<(), semel_bench::peers::Error> {
//! let cluster = semel_testkit::postgres::Cluster::start()?;
//! for peer in all()? {
//!     let installed = match install(&peer, Build::Dist).await {
//!         Ok(installed) => installed,
//!         Err(why) => continue, // and say so
//!     };
//!     let place = Place::prepare(&cluster, &peer).await?;
//!     let running = installed.start(&place, &Settings::default()).await?;
//!     // load running.address()
//!     running.stop().await?;
//! }
//! # Ok(())
//! # }
//! ```

mod check;
mod client;
mod install;
mod manifest;
mod place;
mod process;
mod report;

pub use check::{Duplicates, Fate, Findings, Second, Tried, Verified, check};
pub use install::{Build, Installed, install, program_with_verify};
pub use manifest::{Install, Peer, Store, all, named};
pub use place::Place;
pub use process::{Running, Settings, Work};
pub use report::{Entry, Report};

/// Error in words.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// Returns the folder of the peers' sources.
fn sources() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("peers")
}

/// Returns the folder of installed peers and of findings: `peers` in Cargo's target folder.
pub fn folder() -> Result<std::path::PathBuf, Error> {
    // The program is in target/PROFILE; with a target of its own, in target/TARGET/PROFILE.
    let program = std::env::current_exe()?;
    let target = program.ancestors().find(|folder| folder.join("CACHEDIR.TAG").exists());
    let target = target.ok_or("this program is not in a target folder of Cargo: run it with `cargo run`")?;
    Ok(target.join("peers"))
}

//! The peers: what a user might pick instead of Semel, each a server with the same handler, run from its packages.
//!
//! `manifest` reads what a peer says of itself in `bench/peers/*/peer.toml`, `install` gets its packages, `place` is
//! what it stands on (a database, a Redis, a folder), and `process` starts and ends it. `check` finds out whether its
//! answers are right, and `report` writes that down. Whoever loads peers needs the first four:
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

/// Why something could not be done, in words.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// The folder of the peers' sources.
fn sources() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("peers")
}

/// Where peers are installed, and findings kept: `peers` in Cargo's target folder.
pub fn folder() -> Result<std::path::PathBuf, Error> {
    // The program is in target/PROFILE; with a target of its own, in target/TARGET/PROFILE.
    let program = std::env::current_exe()?;
    let target = program.ancestors().find(|folder| folder.join("CACHEDIR.TAG").exists());
    let target = target.ok_or("this program is not in a target folder of Cargo: run it with `cargo run`")?;
    Ok(target.join("peers"))
}

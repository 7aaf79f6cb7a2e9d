//! Description of the machine and of the measured versions.

use std::process::Command;

use semel_testkit::postgres::Binaries;

use super::served::Ground;
use super::{Form, today};
use crate::peers::Peer;

/// Writes the introduction, which precedes all sections.
pub fn introduction(form: Form, ground: Option<&Ground>, stolen: f64) -> String {
    let mut text = String::from(
        "Written by `cargo xtask bench`, which runs everything below on one machine in one run: all that are compared take \
         turns, round by round, and the figure is the median of the rounds, with the least and the most beside it. Read the \
         ratios, which are taken round by round, so that what the machine did in a round meets both; absolute figures are this \
         machine's, where client, server and database share the same cores. Latencies are measured at a \
         fixed arrival rate, each from the time at which its request was due. Whether answers are right was tried with \
         `semel verify`, with duplicates at once and with crashes: [peers/CORRECTNESS.md](peers/CORRECTNESS.md) has it in full.\n\n",
    );
    if form == Form::Quick {
        text.push_str(
            "**This is the quick form: short turns, few rounds. It shows that everything works.**\n\n",
        );
    }
    text.push_str(&format!("{}, on {}.", today(), machine()));
    if stolen > 0.0 {
        let percent = 100.0 * stolen;
        text.push_str(&format!(
            " It is a virtual machine, whose host kept its cores from it for {percent:.1} % of their time during the run."
        ));
    }
    text.push_str("\n\n");
    text.push_str(&format!("Versions: {}.\n\n", versions().join(", ")));
    let Some(Ground { peers, missing, .. }) = ground else { return text };
    let mut others: Vec<String> = Vec::new();
    for Peer { package, version, .. } in peers.iter().map(|installed| &installed.peer) {
        let named = format!("{package} {version}");
        if package != "semel" && !package.starts_with("bare-") && !others.contains(&named) {
            others.push(named);
        }
    }
    text.push_str(&format!("Peers: {}.\n\n", others.join(", ")));
    for (peer, why) in missing {
        let why = why.lines().next().unwrap_or_default();
        text.push_str(&format!("Not run: {}, which cannot be installed ({why}).\n\n", peer.named()));
    }
    text
}

fn machine() -> String {
    let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    let (processor, memory) = (read("/proc/cpuinfo"), read("/proc/meminfo"));
    let after = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split(':').nth(1)).unwrap_or_default().trim().to_owned()
    };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = after(&memory, "MemTotal").trim_end_matches(" kB").parse().unwrap_or(0.0) / 1_048_576.0;
    let kernel = read("/proc/sys/kernel/osrelease");
    let kernel = kernel.split('-').next().unwrap_or_default().trim();
    format!("{cores} cores of {}, {memory:.0} GiB, Linux {kernel}", after(&processor, "model name"))
}

fn versions() -> Vec<String> {
    let postgres = Binaries::find().map(|binaries| binaries.folder().join("postgres").display().to_string());
    let postgres = postgres.unwrap_or_else(|_| "postgres".into());
    let mut versions =
        vec![format!("semel {}", env!("CARGO_PKG_VERSION")), format!("SQLite {}", rusqlite::version())];
    let programs = [
        ("rustc", vec!["--version"]),
        (postgres.as_str(), vec!["--version"]),
        ("redis-server", vec!["--version"]),
        ("nginx", vec!["-v"]),
        ("haproxy", vec!["-v"]),
        ("node", vec!["--version"]),
        ("python3", vec!["--version"]),
    ];
    for (program, arguments) in programs {
        let Ok(output) = Command::new(program).args(arguments).output() else { continue };
        // nginx prints its version on standard error.
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        let said = said.lines().next().unwrap_or_default().split(" https").next().unwrap_or_default();
        let said = said.split(" sha=").next().unwrap_or_default().trim();
        versions.push(if program == "node" { format!("Node {said}") } else { said.to_owned() });
    }
    versions
}

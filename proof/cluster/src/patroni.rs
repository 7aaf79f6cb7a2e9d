//! PostgreSQL under Patroni and etcd on three nodes, each in a network namespace: started, asked, and broken.
//!
//! Every process of a node works below the node's folder, by which it is found. Functions block.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use semel_testkit::process::Process;
use semel_testkit::processes;
use serde_json::Value;

use crate::configuration::REST;
use crate::health::{Health, wait};
use crate::network::{NODES, Network, Seat};
use crate::programs::{Programs, SHIFTED, as_server, command, make_folder, password, write_for_server};
use crate::settings::Etcd;
use crate::{configuration, rest};

/// Time after which a standby that does not follow is copied anew.
const REINITIALIZE: Duration = Duration::from_secs(45);
/// Longest time for a process to end by itself.
const GOODBYE: Duration = Duration::from_secs(40);
const POLL: Duration = Duration::from_millis(200);

/// Three nodes.
pub(crate) struct Patroni {
    pub(crate) network: Network,
    pub(crate) password: String,
    pub(crate) synchronous: bool,
    shifts_clock: bool,
    etcd: Etcd,
    programs: Programs,
    folder: PathBuf,
    /// Running processes: etcd and Patroni by node.
    etcds: Mutex<BTreeMap<u8, Process>>,
    managers: Mutex<BTreeMap<u8, Process>>,
}

/// State of a node, as its Patroni says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeState {
    pub(crate) seat: Seat,
    pub(crate) timeline: u64,
    /// Standbys that stream, and those of them that are synchronous, by name.
    pub(crate) streaming: Vec<String>,
    pub(crate) synchronous: Vec<String>,
}

impl Patroni {
    /// Starts etcd and Patroni on every node. They find a leader by themselves.
    pub(crate) fn start(
        programs: Programs,
        folder: &Path,
        synchronous: bool,
        shifts_clock: bool,
        etcd: Etcd,
    ) -> Result<Patroni, String> {
        let network = Network::make()?;
        let password = password();
        let (etcds, managers) = (Mutex::default(), Mutex::default());
        let folder = folder.to_owned();
        let patroni =
            Patroni { network, password, synchronous, shifts_clock, etcd, programs, folder, etcds, managers };
        for seat in NODES {
            make_folder(&patroni.etcd_folder(seat))?;
            make_folder(&patroni.folder(seat))?;
            patroni.start_etcd(seat, "new")?;
        }
        for seat in NODES {
            patroni.start_manager(seat)?;
        }
        Ok(patroni)
    }

    /// Returns the working folder of Patroni and PostgreSQL.
    pub(crate) fn folder(&self, seat: Seat) -> PathBuf {
        self.folder.join(seat.name).join("database")
    }

    fn etcd_folder(&self, seat: Seat) -> PathBuf {
        self.folder.join(seat.name).join("etcd")
    }

    /// Returns the file with the shift of this node's clock.
    fn clock(&self, seat: Seat) -> PathBuf {
        self.folder.join(seat.name).join("database/clock")
    }

    fn start_etcd(&self, seat: Seat, state: &str) -> Result<(), String> {
        let url = |seat: Seat, port: u16| format!("http://{}:{port}", self.network.address(seat));
        let members: Vec<String> =
            NODES.iter().map(|seat| format!("{}={}", seat.name, url(*seat, 2380))).collect();
        let mut words = self.network.enter(seat);
        words.extend(as_server()?);
        words.push(self.programs.etcd().display().to_string());
        let options = [
            ("name", seat.name.to_owned()),
            ("data-dir", "data".to_owned()),
            ("listen-peer-urls", url(seat, 2380)),
            ("initial-advertise-peer-urls", url(seat, 2380)),
            ("listen-client-urls", url(seat, 2379)),
            ("advertise-client-urls", url(seat, 2379)),
            ("initial-cluster", members.join(",")),
            ("initial-cluster-state", state.to_owned()),
            ("heartbeat-interval", "250".to_owned()),
            ("election-timeout", "1500".to_owned()),
            ("enable-v2", "true".to_owned()),
            ("log-level", "warn".to_owned()),
        ];
        words.extend(options.iter().map(|(name, value)| format!("--{name}={value}")));
        let log = self.folder.join(format!("{}-etcd.log", seat.name));
        let process = Process::start(command(&words, &self.etcd_folder(seat)), &[], &log)?;
        self.etcds.lock().unwrap_or_else(PoisonError::into_inner).insert(seat.number, process);
        Ok(())
    }

    /// Starts Patroni, which starts PostgreSQL.
    pub(crate) fn start_manager(&self, seat: Seat) -> Result<(), String> {
        let folder = self.folder(seat);
        let file = self.folder.join(format!("{}.json", seat.name));
        let binaries = match self.programs.faketime().filter(|_| self.shifts_clock) {
            Some(library) => self.shift_clock(seat, &library)?,
            None => self.programs.postgres.folder().to_owned(),
        };
        let text = configuration::patroni(&configuration::Node {
            seat,
            network: &self.network,
            folder: &folder,
            binaries: &binaries,
            password: &self.password,
            synchronous: self.synchronous,
            etcd: self.etcd,
        });
        write_for_server(&file, &text)?;
        let mut words = self.network.enter(seat);
        words.extend(as_server()?);
        words.extend(self.programs.patroni(&file));
        let log = self.folder.join(format!("{}-patroni.log", seat.name));
        let process = Process::start(command(&words, &folder), &[], &log)?;
        self.managers.lock().unwrap_or_else(PoisonError::into_inner).insert(seat.number, process);
        Ok(())
    }

    /// Returns a folder of PostgreSQL's programs in which the server runs with a clock of its own. Patroni keeps the
    /// machine's clock: its Python cannot sleep under libfaketime.
    fn shift_clock(&self, seat: Seat, library: &Path) -> Result<PathBuf, String> {
        let folder = self.folder.join(seat.name).join("bin");
        let why = |error: std::io::Error| format!("{}: {error}", folder.display());
        self.set_clock(seat, "+0")?;
        if folder.exists() {
            return Ok(folder);
        }
        std::fs::create_dir(&folder).map_err(why)?;
        let programs = self.programs.postgres.folder();
        for entry in std::fs::read_dir(programs).map_err(why)? {
            let entry = entry.map_err(why)?;
            if entry.file_name() != "postgres" {
                std::os::unix::fs::symlink(entry.path(), folder.join(entry.file_name())).map_err(why)?;
            }
        }
        // The process id is in the name of the memory that libfaketime shares.
        let script = format!(
            "#!/bin/sh\necho $$ >>'{}'\nexport LD_PRELOAD='{}' FAKETIME_TIMESTAMP_FILE='{}'\n\
             export FAKETIME_CACHE_DURATION=1 FAKETIME_DONT_FAKE_MONOTONIC=1\nexec '{}' \"$@\"\n",
            self.folder(seat).join(SHIFTED).display(),
            library.display(),
            self.clock(seat).display(),
            programs.join("postgres").display()
        );
        let program = folder.join("postgres");
        std::fs::write(&program, script).map_err(why)?;
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .map_err(why)?;
        Ok(folder)
    }

    /// Kills Patroni and PostgreSQL of a node at once.
    pub(crate) fn kill(&self, seat: Seat) -> Result<(), String> {
        // Suspended first, so that Patroni cannot tell anybody that its PostgreSQL is gone.
        processes::suspend_within(&self.folder(seat));
        processes::kill_within(&self.folder(seat))?;
        self.managers.lock().unwrap_or_else(PoisonError::into_inner).remove(&seat.number);
        Ok(())
    }

    /// Stops a node as an operator would, and waits until all of it has ended.
    pub(crate) fn stop(&self, seat: Seat) -> Result<(), String> {
        let manager = self.managers.lock().unwrap_or_else(PoisonError::into_inner).remove(&seat.number);
        let Some(mut manager) = manager else { return Ok(()) };
        processes::terminate(manager.id());
        let deadline = Instant::now() + GOODBYE;
        while manager.exit_status()?.is_none() || !processes::within(&self.folder(seat)).is_empty() {
            if Instant::now() > deadline {
                return processes::kill_within(&self.folder(seat));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    pub(crate) fn suspend(&self, seat: Seat) {
        processes::suspend_within(&self.folder(seat));
    }

    pub(crate) fn resume(&self, seat: Seat) {
        processes::resume_within(&self.folder(seat));
    }

    /// Limits the files that the node's PostgreSQL and Patroni write.
    pub(crate) fn limit_files(&self, seat: Seat, length: Option<u64>) -> Result<(), String> {
        processes::limit_files_within(&self.folder(seat), length)
    }

    pub(crate) fn kill_etcd(&self, seat: Seat) {
        self.etcds.lock().unwrap_or_else(PoisonError::into_inner).remove(&seat.number);
    }

    pub(crate) fn restart_etcd(&self, seat: Seat) -> Result<(), String> {
        self.start_etcd(seat, "existing")
    }

    /// Shifts the clock of a node, as in `-30s`.
    pub(crate) fn set_clock(&self, seat: Seat, shift: &str) -> Result<(), String> {
        write_for_server(&self.clock(seat), shift)
    }

    /// Returns the state of the node that holds the leader's lock, if one says so.
    pub(crate) fn leader(&self) -> Option<NodeState> {
        let states = NODES.iter().filter_map(|seat| self.state(*seat));
        states.max_by_key(|state| state.timeline)
    }

    /// Returns the state of this node if it is the leader.
    fn state(&self, seat: Seat) -> Option<NodeState> {
        let (status, body) = rest::ask(self.network.address(seat), REST, "GET", "/primary", "").ok()?;
        let document: Value = serde_json::from_str(&body).ok().filter(|_| status == 200)?;
        let names = |fits: &dyn Fn(&Value) -> bool| {
            let standbys = document["replication"].as_array().into_iter().flatten();
            let fitting = standbys.filter(|standby| fits(standby));
            let names = fitting.filter_map(|standby| standby["application_name"].as_str());
            // Neither a copy that is being made nor a rewind is a standby.
            names.filter(|name| NODES.iter().any(|seat| seat.name == *name)).map(str::to_owned).collect()
        };
        Some(NodeState {
            seat,
            timeline: document["timeline"].as_u64()?,
            streaming: names(&|standby| standby["state"] == "streaming"),
            synchronous: names(&|standby| matches!(standby["sync_state"].as_str(), Some("sync" | "quorum"))),
        })
    }

    /// Returns the state of the cluster, if it has recovered from every fault.
    pub(crate) fn health(&self) -> Option<Health> {
        let leader = self.leader()?;
        let named = |name: &String| NODES.into_iter().find(|seat| seat.name == name);
        let synchronous = leader.synchronous.iter().find_map(named);
        let enough = synchronous.is_some() || !self.synchronous;
        (leader.streaming.len() >= NODES.len() - 1 && enough).then_some(Health {
            leader: leader.seat,
            timeline: leader.timeline,
            synchronous,
        })
    }

    /// Waits until the cluster has recovered. A standby that does not follow by itself is copied anew, as an operator
    /// would order it.
    pub(crate) fn wait_until_healthy(&self, patience: Duration) -> Result<Health, String> {
        let deadline = Instant::now() + patience;
        loop {
            match wait(REINITIALIZE, || self.health()) {
                Err(why) if Instant::now() > deadline => return Err(why),
                Err(_) => self.copy_missing_standbys(),
                Ok(health) => return Ok(health),
            }
        }
    }

    /// Orders a new copy of each standby that does not stream.
    fn copy_missing_standbys(&self) {
        let Some(leader) = self.leader() else { return };
        let is_missing =
            |seat: &Seat| *seat != leader.seat && !leader.streaming.iter().any(|name| name == seat.name);
        for seat in NODES.into_iter().filter(is_missing) {
            // One that does not answer is asked again later.
            let _ = rest::ask(self.network.address(seat), REST, "POST", "/reinitialize", "{\"force\": true}");
        }
    }

    /// Asks the leader's Patroni to hand over to this node.
    pub(crate) fn switch_over(&self, from: Seat, to: Seat) -> Result<(), String> {
        let body = format!("{{\"leader\": \"{}\", \"candidate\": \"{}\"}}", from.name, to.name);
        match rest::ask(self.network.address(from), REST, "POST", "/switchover", &body)? {
            (200, _) => Ok(()),
            (status, why) => Err(format!("the switchover to {} was refused with {status}: {why}", to.name)),
        }
    }
}

impl Drop for Patroni {
    fn drop(&mut self) {
        // Patroni first, all at once: otherwise the others would elect a new leader.
        for seat in NODES {
            self.resume(seat);
        }
        for seat in NODES {
            let _ = self.kill(seat);
        }
        self.etcds.lock().unwrap_or_else(PoisonError::into_inner).clear();
        crate::leftovers::forget_shared_memory(&self.folder);
    }
}

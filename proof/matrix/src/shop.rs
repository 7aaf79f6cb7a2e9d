//! Environment of a cell about a service's own transactions: its database, two of its processes, and the receiver of
//! its messages.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use crate::client::{self, Asked};
use crate::kept::Kept;
use crate::lab::{Lab, Place};
use crate::patience::PATIENCE;
use crate::process::Process;
use crate::receiver::{Manner, Receiver};
use crate::seen::Told;
use crate::service::{Mood, TABLE};

/// Polling interval for a state.
const PAUSE: Duration = Duration::from_millis(20);

/// Start settings of the processes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// True for each process that delivers messages.
    pub(crate) workers: [bool; 2],
    /// Fate of the first command of process `a`.
    pub(crate) mood: Mood,
    /// Behaviour of the receiver.
    pub(crate) manner: Manner,
    /// Maximum of delivery attempts.
    pub(crate) tries: u32,
}

/// Environment of a cell. The first request always goes to process `a`.
pub(crate) struct Shop<'a> {
    lab: &'a Lab,
    pub(crate) folder: PathBuf,
    pub(crate) place: Place,
    pub(crate) receiver: Receiver,
    pub(crate) a: Process,
    pub(crate) b: Process,
    pub(crate) key: String,
    terms: Terms,
}

impl Shop<'_> {
    pub(crate) async fn open(lab: &Lab, terms: Terms) -> Result<Shop<'_>, String> {
        let folder = lab.cell_folder()?;
        let place = lab.place(&folder).await?;
        make_table(&place)?;
        let key = lab.key(&folder);
        let receiver = Receiver::start(terms.manner, &key).await?;
        let start = |number| start(lab, &folder, &place, &receiver, terms, number);
        let (a, b) = (start(0)?, start(1)?);
        Ok(Shop { lab, folder, place, receiver, a, b, key, terms })
    }

    /// Starts process `a` again. Its first command succeeds.
    pub(crate) fn restart_a(&mut self) -> Result<(), String> {
        let terms = Terms { mood: Mood::Well, ..self.terms };
        self.a = start(self.lab, &self.folder, &self.place, &self.receiver, terms, 0)?;
        Ok(())
    }

    /// Starts process `b` again, with a worker.
    pub(crate) fn restart_b(&mut self) -> Result<(), String> {
        self.terms.workers[1] = true;
        self.b.kill();
        self.b = start(self.lab, &self.folder, &self.place, &self.receiver, self.terms, 1)?;
        Ok(())
    }

    /// Loses all writes.
    pub(crate) async fn lose_everything(&mut self) -> Result<(), String> {
        if self.place.file().is_some() {
            self.a.kill();
            self.b.kill();
        }
        self.place.lose_everything().await?;
        make_table(&self.place)?;
        self.place.heal().await?;
        if self.place.file().is_some() {
            self.restart_a()?;
            self.restart_b()?;
        }
        Ok(())
    }

    pub(crate) fn kept(&self) -> Result<Kept, String> {
        Kept::read(&self.place)
    }

    /// Sends the request to this process, in a task of its own.
    pub(crate) fn send(&self, process: &Process) -> JoinHandle<Told> {
        tokio::spawn(client::send(process.address(), asked(&self.key)))
    }

    /// Repeats the request at this process until a response matches. Returns all responses.
    pub(crate) async fn ask_until(
        &self,
        process: &Process,
        what: &str,
        is_it: impl Fn(&Told) -> bool,
    ) -> Result<Vec<Told>, String> {
        let mut all: Vec<Told> = Vec::new();
        let begun = Instant::now();
        loop {
            let told = client::send(process.address(), asked(&self.key)).await;
            let found = is_it(&told);
            if !found && begun.elapsed() > PATIENCE {
                return Err(format!("{what} in {} s; the last answer was {told}", PATIENCE.as_secs()));
            }
            all.push(told);
            if found {
                return Ok(all);
            }
            tokio::time::sleep(PAUSE * 5).await;
        }
    }

    /// Waits until the database's content matches, and returns it.
    pub(crate) async fn kept_until(&self, what: &str, is_it: impl Fn(&Kept) -> bool) -> Result<Kept, String> {
        let begun = Instant::now();
        loop {
            let kept = self.kept()?;
            if is_it(&kept) {
                return Ok(kept);
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!("{what} in {} s; there are {}", PATIENCE.as_secs(), kept.tell()));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Waits until no message is pending.
    pub(crate) async fn nothing_is_pending(&self) -> Result<Kept, String> {
        let is_done = |kept: &Kept| kept.messages.iter().all(|message| message.state != "pending");
        self.kept_until("a message stayed on its way", is_done).await
    }
}

/// Makes a payment under this key.
pub(crate) fn asked(key: &str) -> Asked {
    Asked::command("/payments", key)
}

fn make_table(place: &Place) -> Result<(), String> {
    match place.file() {
        None => place.sql(&format!("{TABLE}; GRANT ALL ON matrix_payments TO PUBLIC")).map(drop),
        Some(file) => {
            let make = || rusqlite::Connection::open(file)?.execute_batch(TABLE);
            make().map_err(|error: rusqlite::Error| error.to_string())
        }
    }
}

fn start(
    lab: &Lab,
    folder: &std::path::Path,
    place: &Place,
    receiver: &Receiver,
    terms: Terms,
    number: usize,
) -> Result<Process, String> {
    let name = ["a", "b"][number];
    let mood = if number == 0 { terms.mood } else { Mood::Well };
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = lab.other_program(&own, &place.for_gateway(number));
    command.current_dir(folder).arg("service").arg(format!("http://{}/events", receiver.address));
    command.args([if terms.workers[number] { "worker" } else { "idle" }, mood.as_str()]);
    command.arg(terms.tries.to_string());
    let log = folder.join(format!("{name}.log"));
    let faults = folder.join(format!("faults-{name}"));
    tokio::task::block_in_place(|| Process::start(command, &["listening on http://"], &log, &faults))
        .map_err(|why| format!("service {name}: {why}"))
}

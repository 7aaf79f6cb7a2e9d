//! The process between a test and its server, which outlives the test long enough to clean up. See `supervisor.sh`.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use super::Error;

/// Length of a log's end that an error shows.
const LOG_TAIL: usize = 2_000;

/// Runs a server's processes in a folder of their own. Dropping it ends them and removes the folder.
pub(super) struct Supervisor {
    folder: PathBuf,
    process: Child,
    pipes: Mutex<Option<(ChildStdin, BufReader<ChildStdout>)>>,
}

impl Supervisor {
    /// Starts a supervisor. `goodbye` is the signal that ends the server at once.
    pub(super) fn start(goodbye: &str) -> Result<Supervisor, Error> {
        let mut command = Command::new("sh");
        command.args(["-c", include_str!("supervisor.sh"), "supervisor", goodbye]);
        command.args([std::env::temp_dir(), "/tmp".into(), "/var/tmp".into()]);
        command.current_dir("/").env("LC_ALL", "C").process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        if let Some((user, group)) = user_for_servers()? {
            command.uid(user).gid(group);
        }
        let mut process =
            command.spawn().map_err(|error| Error::new(format!("sh cannot be run: {error}")))?;
        let orders = process.stdin.take().expect("it is piped");
        let answers = BufReader::new(process.stdout.take().expect("it is piped"));
        let mut supervisor =
            Supervisor { folder: PathBuf::new(), process, pipes: Mutex::new(Some((orders, answers))) };
        supervisor.folder = supervisor.expect(None, "folder ")?.into();
        Ok(supervisor)
    }

    /// Returns the folder with all files.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the working directory of all its processes, by which they are recognised.
    pub(super) fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Gives an order and returns the rest of its answer, which must begin with `answer`.
    pub(super) fn order(&self, order: &str, words: &[&str], answer: &str) -> Result<String, Error> {
        let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
        self.expect(Some(&format!("{order} {}\n", words.join(" "))), answer)
    }

    fn expect(&self, order: Option<&str>, answer: &str) -> Result<String, Error> {
        let mut pipes = self.pipes.lock().unwrap_or_else(PoisonError::into_inner);
        let (orders, answers) = pipes.as_mut().expect("they are there until it is dropped");
        let gone = |error| Error::new(format!("the supervisor of a server is gone: {error}"));
        if let Some(order) = order {
            orders.write_all(order.as_bytes()).map_err(gone)?;
        }
        let mut line = String::new();
        answers.read_line(&mut line).map_err(gone)?;
        line.trim_end().strip_prefix(answer).map(str::to_owned).ok_or_else(|| {
            let order = order.unwrap_or("start").trim_end();
            Error::new(format!("a server's supervisor was told `{order}` and said `{}`", line.trim_end()))
        })
    }

    /// Returns the end of the processes' log.
    pub(super) fn log_tail(&self) -> String {
        let log = std::fs::read(self.folder.join("log")).unwrap_or_default();
        String::from_utf8_lossy(&log[log.len().saturating_sub(LOG_TAIL)..]).into_owned()
    }

    /// Returns the processes that are alive, or suspended.
    pub(super) fn processes(&self) -> Vec<u32> {
        let data = self.data();
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        numbers
            .filter(|process| of_process(*process, "cwd").read_link().is_ok_and(|cwd| cwd == data))
            .collect()
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        // No more orders: it cleans up and ends.
        *self.pipes.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
        let _ = self.process.wait();
    }
}

/// Returns true if a process is suspended; `None` if it is dead.
pub(super) fn is_stopped(process: u32) -> Option<bool> {
    let line = std::fs::read_to_string(of_process(process, "stat")).ok()?;
    // The name before it is in parentheses and may have any character.
    let state = line.rsplit_once(") ")?.1.chars().next()?;
    (!matches!(state, 'Z' | 'X')).then_some(matches!(state, 'T' | 't'))
}

/// Sends a signal. A process that is gone meanwhile is no error.
pub(super) fn signal(name: &str, processes: &[u32]) -> Result<(), Error> {
    let mut command = Command::new("sh");
    command.args(["-c", "for process; do kill -s \"$0\" \"$process\" 2>/dev/null; done; :", name]);
    command.args(processes.iter().map(u32::to_string));
    let status = command.status().map_err(|error| Error::new(format!("sh cannot be run: {error}")))?;
    status.success().then_some(()).ok_or_else(|| Error::new(format!("no signal {name} could be sent")))
}

fn of_process(process: u32, file: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{process}/{file}"))
}

/// Quotes one word for the shell.
fn quoted(word: &str) -> String {
    assert!(!word.contains('\n'), "an order is one line");
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Returns the user and group for servers: they refuse to run as root, and then run as `postgres`, or else as the user
/// `nobody`. `None` if this process is not root.
pub fn user_for_servers() -> Result<Option<(u32, u32)>, Error> {
    let me = Path::new("/proc/self").metadata();
    let me = me.map_err(|error| Error::new(format!("/proc is needed to run private servers: {error}")))?;
    if me.uid() != 0 {
        return Ok(None);
    }
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let user = find_user(&users, "postgres").or_else(|| find_user(&users, "nobody"));
    user.map(Some).ok_or_else(|| {
        Error::new(
            "PostgreSQL does not run as root, and /etc/passwd has no user `postgres` or `nobody` to run it as: \
             run the tests as another user",
        )
    })
}

fn find_user(users: &str, name: &str) -> Option<(u32, u32)> {
    let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
    let mut fields = line.split(':').skip(2);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_its_whole_name() {
        let users = "root:x:0:0::/root:/bin/sh\npostgres2:x:7:8::/:/bin/sh\npostgres:x:106:113::/:/bin/sh\n";
        assert_eq!(find_user(users, "postgres"), Some((106, 113)));
        assert_eq!(find_user(users, "nobody"), None);
    }

    #[test]
    fn words_keep_their_quotes_and_spaces() {
        assert_eq!(quoted("it's a word"), r"'it'\''s a word'");
    }
}

//! Output on a terminal: colours if it has them, lines that fit, and a demo that pauses and can be stopped.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tempfile::TempDir;

use crate::commands::run;
use crate::gateway::lab::semel;

/// Program whose standard output is a terminal.
struct OnTerminal {
    process: Child,
    screen: File,
    seen: String,
}

impl OnTerminal {
    /// Starts the command on a terminal with this many columns.
    fn start(command: &mut Command, columns: u16) -> OnTerminal {
        let screen = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("the system has terminals");
        grantpt(&screen).expect("it is ours");
        unlockpt(&screen).expect("it is ours");
        let name = ptsname(&screen, Vec::new()).expect("it has a name");
        let terminal: OwnedFd =
            rustix::fs::open(&name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).expect("it opens");
        let size = Winsize { ws_row: 40, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&terminal, size).expect("it has a size");
        let process =
            command.stdin(Stdio::null()).stdout(Stdio::from(terminal)).stderr(Stdio::null()).spawn();
        // The command keeps its end of the terminal until this replaces it.
        command.stdout(Stdio::null());
        OnTerminal {
            process: process.expect("the program runs"),
            screen: File::from(screen),
            seen: String::new(),
        }
    }

    /// Reads until this text is on the screen.
    fn wait_for(&mut self, words: &str) {
        while !self.seen.contains(words) {
            assert!(self.read(), "it ended before it said {words:?}: {}", self.seen);
        }
    }

    /// Reads part of the output; returns `false` at the end, when the terminal's other side is closed.
    fn read(&mut self) -> bool {
        let mut part = [0; 4096];
        let read = self.screen.read(&mut part).unwrap_or(0);
        self.seen.push_str(&String::from_utf8_lossy(&part[..read]).replace('\r', ""));
        read > 0
    }

    /// Returns the whole screen, and the exit code.
    fn end(mut self) -> (String, Option<i32>) {
        while self.read() {}
        (self.seen, self.process.wait().expect("it ends").code())
    }
}

fn doctor(folder: &TempDir) -> Command {
    let mut command = semel(folder.path());
    command.args(["doctor", "--upstream", "http://127.0.0.1:1", "--listen", "127.0.0.1:2"]);
    command.args(["--admin-listen", "127.0.0.1:3"]);
    command
}

#[test]
fn lines_fit_a_narrow_terminal() {
    let folder = TempDir::new().expect("there is room");
    assert!(run(folder.path(), &["keys", "create", "--tenant", "t", "--caller", "c"]).status.success());
    let mut show = semel(folder.path());
    show.args(["config", "show"]).env("TERM", "dumb");
    for command in [doctor(&folder).env("TERM", "dumb"), &mut show] {
        let (screen, _) = OnTerminal::start(command, 60).end();
        let wide: Vec<&str> = screen.lines().filter(|line| line.chars().count() > 60).collect();
        assert!(screen.lines().count() > 10 && wide.is_empty(), "{wide:#?}");
    }
    let mut wide = semel(folder.path());
    let (screen, _) = OnTerminal::start(wide.args(["config", "show"]), 300).end();
    assert!(screen.lines().any(|line| line.chars().count() > 60), "{screen}");
    let piped = run(folder.path(), &["config", "show"]);
    let longest = String::from_utf8_lossy(&piped.stdout).lines().map(|line| line.chars().count()).max();
    assert!(longest.is_some_and(|longest| longest > 60), "a pipe has no width");
}

#[test]
fn colours_are_for_terminals_that_have_them() {
    let folder = TempDir::new().expect("there is room");
    for (variables, coloured) in [
        (&[("TERM", "xterm")][..], true),
        (&[("TERM", "dumb")], false),
        (&[("TERM", "xterm"), ("NO_COLOR", "1")], false),
    ] {
        let (screen, _) = OnTerminal::start(doctor(&folder).envs(variables.iter().copied()), 100).end();
        assert_eq!(screen.contains('\u{1b}'), coloured, "{variables:?}: {screen:?}");
    }
}

#[test]
fn a_demo_takes_its_time_on_a_terminal_and_can_be_stopped() {
    let folder = TempDir::new().expect("there is room");
    let mut command = semel(folder.path());
    let mut demo = OnTerminal::start(command.args(["demo", "--once"]).env("TMPDIR", folder.path()), 80);
    demo.wait_for("--fast");
    demo.wait_for("A payment service");
    let asked = Command::new("kill").args(["-INT", &demo.process.id().to_string()]).status();
    assert!(asked.expect("kill runs").success());
    let (screen, code) = demo.end();
    assert_eq!(code, Some(1), "it has proven nothing: {screen}");
    assert!(!screen.contains("The ledger proves"), "{screen}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("it is there").count(), 0, "nothing stays");

    let mut command = semel(folder.path());
    let fast = OnTerminal::start(command.args(["demo", "--once", "--fast"]).env("TMPDIR", folder.path()), 80);
    let (screen, code) = fast.end();
    assert_eq!(code, Some(0), "{screen}");
    assert!(
        screen.contains("The ledger proves every claim above.") && !screen.contains("Told slowly"),
        "{screen}"
    );
}

//! The parts of a long command: run one after the other or side by side, with the time that each takes.
//!
//! Parts that run side by side write to files of their own, which are shown whole once all have ended, so that their lines
//! never mix. The slowest parts, and the slowest tests, are listed at the end.

use std::fs::File;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::databases::target;

/// The number of parts, and of tests, that are listed at the end.
const SLOWEST: usize = 10;

/// Times of the parts and tests so far.
#[derive(Default)]
pub(crate) struct Parts {
    parts: Vec<(String, Duration)>,
    tests: Vec<(String, Duration)>,
}

/// One program of those that run side by side.
pub(crate) struct Beside {
    /// The name of the part.
    pub(crate) name: &'static str,
    /// The commands, one after the other; the first failure ends them.
    pub(crate) commands: Vec<Command>,
}

impl Parts {
    /// Runs one part and notes its time, also if it fails.
    pub(crate) fn run<T>(
        &mut self,
        name: &str,
        part: impl FnOnce() -> Result<T, String>,
    ) -> Result<T, String> {
        let begun = Instant::now();
        let done = part();
        self.note(name, begun.elapsed());
        done
    }

    fn note(&mut self, name: &str, taken: Duration) {
        println!("── {name}: {:.1} s", taken.as_secs_f64());
        self.parts.push((name.to_owned(), taken));
    }

    /// Runs parts side by side. All run to their end; then the output of each is shown, those that failed last.
    pub(crate) fn side_by_side(&mut self, parts: Vec<Beside>) -> Result<(), String> {
        let names: Vec<&str> = parts.iter().map(|part| part.name).collect();
        println!("── side by side: {}", names.join(", "));
        let folder = target()?.join("parts");
        std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let mut ended: Vec<Ended> = std::thread::scope(|scope| {
            let running: Vec<_> = parts.into_iter().map(|part| scope.spawn(|| part.run(&folder))).collect();
            running.into_iter().map(|part| part.join().expect("a part does not panic")).collect()
        });
        ended.sort_by_key(|part| part.failed.is_some());
        let mut failed = Vec::new();
        for Ended { name, taken, output, failed: why } in ended {
            println!("── {name}\n{}", output.trim_end());
            self.note(name, taken);
            failed.extend(why.map(|why| format!("{name} failed: {why}")));
        }
        if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
    }

    /// Notes the times of the tests that `cargo nextest` has just run.
    pub(crate) fn note_tests(&mut self, suffix: &str) {
        let report = target().map(|target| target.join("nextest/default/junit.xml"));
        let report = report.ok().and_then(|file| std::fs::read_to_string(file).ok()).unwrap_or_default();
        self.tests.extend(tests(&report).map(|(name, taken)| (name + suffix, taken)));
    }

    /// Prints the slowest parts and tests.
    pub(crate) fn print_slowest(&mut self) {
        for (what, times) in [("parts", &mut self.parts), ("tests", &mut self.tests)] {
            if times.is_empty() {
                continue;
            }
            let all: Duration = times.iter().map(|(_, taken)| *taken).sum();
            times.sort_by_key(|(_, taken)| std::cmp::Reverse(*taken));
            println!("── slowest {what}, of {} that took {:.0} s together", times.len(), all.as_secs_f64());
            for (name, taken) in times.iter().take(SLOWEST) {
                println!("{:8.1} s  {name}", taken.as_secs_f64());
            }
        }
    }
}

/// A part that has run beside others.
struct Ended {
    name: &'static str,
    taken: Duration,
    output: String,
    failed: Option<String>,
}

impl Beside {
    fn run(mut self, folder: &std::path::Path) -> Ended {
        let begun = Instant::now();
        let log = folder.join(format!("{}.log", self.name.replace(' ', "-")));
        let done = self.run_all(&log);
        let output = std::fs::read(&log).unwrap_or_default();
        Ended {
            name: self.name,
            taken: begun.elapsed(),
            output: String::from_utf8_lossy(&output).into_owned(),
            failed: done.err(),
        }
    }

    fn run_all(&mut self, log: &std::path::Path) -> Result<(), String> {
        let why = |error: std::io::Error| format!("{}: {error}", log.display());
        let file = File::create(log).map_err(why)?;
        for command in &mut self.commands {
            let (out, err) = (file.try_clone().map_err(why)?, file.try_clone().map_err(why)?);
            let status = command.stdin(Stdio::null()).stdout(out).stderr(err).status();
            let program = command.get_program().to_string_lossy().into_owned();
            let status = status.map_err(|error| format!("{program} cannot be run: {error}"))?;
            if !status.success() {
                return Err(format!("{program} ended with {status}; see above"));
            }
        }
        Ok(())
    }
}

/// Returns the tests of a report in JUnit's format, each with its time.
fn tests(report: &str) -> impl Iterator<Item = (String, Duration)> {
    let cases = report.split("<testcase ").skip(1);
    cases.filter_map(|case| {
        let attributes = case.split('>').next()?;
        let value = |name: &str| {
            let (_, rest) = attributes.split_once(&format!("{name}=\""))?;
            rest.split('"').next()
        };
        let taken = Duration::try_from_secs_f64(value(" time")?.parse().ok()?).ok()?;
        let (name, binary) = (value("name")?, value("classname")?);
        Some((format!("{binary} {name}"), taken))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_report_has_tests_with_their_times() {
        let report = "<testsuites name=\"nextest-run\" tests=\"2\" time=\"3.5\">\n\
            <testcase name=\"a::b\" classname=\"semel-core::it\" timestamp=\"2026\" time=\"1.250\">\n</testcase>\n\
            <testcase name=\"c\" classname=\"xtask::bin/xtask\" timestamp=\"2026\" time=\"0.007\"></testcase>";
        let expected = [
            ("semel-core::it a::b".to_owned(), Duration::from_millis(1250)),
            ("xtask::bin/xtask c".to_owned(), Duration::from_millis(7)),
        ];
        assert_eq!(tests(report).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_part_that_fails_keeps_its_output_and_lets_the_others_end() {
        let folder = target().expect("tests run below target").join("parts");
        std::fs::create_dir_all(&folder).expect("it can be made");
        let part = Beside {
            name: "part of a test",
            commands: vec![shell("echo first; exit 3"), shell("echo second")],
        };
        let ended = part.run(&folder);
        assert_eq!(ended.output, "first\n");
        assert!(ended.failed.expect("it failed").contains("exit status: 3"));

        let mut parts = Parts::default();
        let beside = |name, script| Beside { name, commands: vec![shell(script)] };
        let done = parts.side_by_side(vec![
            beside("bad half of a test", "exit 1"),
            beside("good half of a test", "exit 0"),
        ]);
        assert!(done.expect_err("one failed").starts_with("bad half of a test failed"));
        let names: Vec<&str> = parts.parts.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["good half of a test", "bad half of a test"]);
    }

    #[test]
    fn the_time_of_a_part_is_noted_also_if_it_fails() {
        let mut parts = Parts::default();
        assert!(parts.run("bad", || Err::<(), _>("why".to_owned())).is_err());
        assert_eq!(parts.parts.len(), 1);
    }
}

//! The benchmark: `cargo xtask bench`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing is what it is for")]

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use semel_bench::peers::{Build, program_with_verify};
use semel_bench::results::report::Section;
use semel_bench::results::served::Ground;
use semel_bench::results::{
    Form, Result, commands, growth, instructions, machine, outbox, proxies, replay, report, requests, size,
    stores, storm,
};
use semel_bench::used;
use tokio::sync::OnceCell;

/// Sections, in the order of the report.
const SECTIONS: [&str; 10] = [
    "replay",
    "commands",
    "stores",
    "gateway",
    "storm",
    "growth",
    "size",
    "instructions",
    "requests",
    "outbox",
];

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        // callgrind runs this command.
        ["perform", task, size, times] => perform(task, size, times),
        _ => match Options::read(&arguments) {
            Some(options) => run(options).await,
            None => {
                eprintln!(
                    "usage: cargo xtask bench [--quick] [SECTION…]\n\nSections: {}",
                    SECTIONS.join(", ")
                );
                return ExitCode::from(2);
            }
        },
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("bench: {why}");
            ExitCode::FAILURE
        }
    }
}

fn perform(task: &str, size: &str, times: &str) -> Result<()> {
    instructions::perform(task, size.parse()?, times.parse()?)
}

struct Options {
    form: Form,
    sections: Vec<&'static str>,
}

impl Options {
    fn read(arguments: &[&str]) -> Option<Options> {
        let mut options = Options { form: Form::Whole, sections: Vec::new() };
        for argument in arguments {
            match *argument {
                "--quick" => options.form = Form::Quick,
                name => options.sections.push(SECTIONS.into_iter().find(|section| *section == name)?),
            }
        }
        Some(options)
    }
}

async fn run(options: Options) -> Result<()> {
    let Options { form, sections } = options;
    let program = std::env::current_exe()?;
    // Only a complete run in its whole form replaces the published results.
    let folder = match (form, sections.is_empty()) {
        (Form::Whole, true) => Path::new(env!("CARGO_MANIFEST_DIR")).to_owned(),
        _ => program.with_file_name("bench"),
    };
    let sections = if sections.is_empty() { SECTIONS.to_vec() } else { sections };
    // Other programs, built or installed when the first section needs them.
    let prepared = OnceCell::new();
    let ground = || prepared.get_or_try_init(|| Ground::prepare(form));
    let (begun, stolen) = (Instant::now(), used::stolen());
    let mut seen: Vec<Section> = Vec::new();
    for name in sections {
        let section = match name {
            "replay" => replay::run(ground().await?, form).await?,
            "commands" => commands::run(ground().await?, form).await?,
            "stores" => stores::run(form).await?,
            "gateway" => proxies::run(ground().await?, form).await?,
            "storm" => storm::run(ground().await?, form).await?,
            "growth" => {
                let [growth, finding] = growth::run(form).await?;
                seen.push(growth);
                finding
            }
            "size" => size::run(form, &ground().await?.semel).await?,
            "requests" => requests::run(&program_with_verify(Build::Dist).await?, form).await?,
            "outbox" => outbox::run(form).await?,
            _ => instructions::run(&program)?,
        };
        seen.push(section);
        // Writes the finished sections: the others take long.
        let cores = std::thread::available_parallelism()?.get() as f64;
        let stolen =
            used::stolen().saturating_sub(stolen) as f64 / 100.0 / begun.elapsed().as_secs_f64() / cores;
        report::write(&folder, &machine::introduction(form, prepared.get(), stolen), &seen)?;
    }
    println!("── written: {}", folder.join("RESULTS.md").display());
    Ok(())
}

//! The benchmark: `cargo xtask bench`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing is what it is for")]

use std::path::Path;

use semel_bench::results::{Form, Result, growth, instructions, report};

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["perform", task, size, times] => instructions::perform(task, size.parse()?, times.parse()?),
        [] => run(Form::Whole).await,
        ["--quick"] => run(Form::Quick).await,
        _ => Err("usage: results [--quick]".into()),
    }
}

async fn run(form: Form) -> Result<()> {
    let program = std::env::current_exe()?;
    let sections = [growth::run(form).await?, instructions::run(&program)?];
    let folder = match form {
        Form::Quick => program.with_file_name("bench-quick"),
        Form::Whole => Path::new(env!("CARGO_MANIFEST_DIR")).to_owned(),
    };
    report::write(&folder, "", &sections)?;
    println!("── written: {}", folder.join("RESULTS.md").display());
    Ok(())
}

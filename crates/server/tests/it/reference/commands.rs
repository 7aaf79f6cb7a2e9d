//! `commands.md`: every command with its arguments and exit codes, from the definitions of the command line.

use clap::{Arg, ArgAction, Command};
use regex::Regex;

use super::assert_page;
use super::markdown::{cell, code, codes, table};

const HEAD: &str = "\
# Commands

Every command of `semel`, with its arguments and exit codes. `semel COMMAND --help` also says when to use it and gives an
example. Begin with `semel demo`, then `semel serve --upstream URL`. Every command takes `--config FILE` (the configuration,
`./semel.toml` by default) and `--help`; `semel --version` prints the version. `--store STORE` names another store than the
configured one (`sqlite:PATH` or `postgres://…`), and `--json` prints JSON for programs; commands that take them say so.

In general, exit code 0 means done, 1 that the answer is no, 2 wrong use, or that it cannot be done.

";

/// Arguments of many commands, which the page's head explains.
const COMMON: [&str; 2] = ["store", "json"];

/// Headings of the flags that come from the table of settings.
const SETTINGS: [&str; 2] = ["Settings", "Defaults of operations"];

fn is_setting(argument: &Arg) -> bool {
    argument.get_help_heading().is_some_and(|heading| SETTINGS.contains(&heading))
}

/// Returns the commands to show below this one.
fn below(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|below| !below.is_hide_set())
}

fn about(command: &Command) -> String {
    cell(&command.get_about().expect("a test asks for it").to_string())
}

/// Returns the anchor of a command's heading.
fn anchor(name: &str) -> String {
    name.replace(' ', "-")
}

fn overview(name: &str, command: &Command, rows: &mut Vec<[String; 2]>) {
    for command in below(command) {
        let name = format!("{name} {}", command.get_name());
        rows.push([format!("[`{name}`](#{})", anchor(&name)), about(command)]);
        overview(&name, command, rows);
    }
}

/// Returns an argument as it is written.
fn written(argument: &Arg) -> String {
    let value = argument.get_value_names().and_then(|names| names.first()).map(ToString::to_string);
    let takes_value = argument.get_action().takes_values();
    let value = value.filter(|_| takes_value).unwrap_or_default();
    let many = if matches!(argument.get_action(), ArgAction::Append) { " …" } else { "" };
    match argument.get_long() {
        Some(long) if value.is_empty() => format!("--{long}"),
        Some(long) => format!("--{long} {value}{many}"),
        None => format!("{value}{many}"),
    }
}

fn row(argument: &Arg) -> [String; 3] {
    let help = cell(&argument.get_help().expect("a test asks for it").to_string());
    let values = argument.get_possible_values();
    let is_flag = !argument.get_action().takes_values();
    let values = if is_flag { String::new() } else { codes(values.iter().map(|value| value.get_name())) };
    let defaults: Vec<_> = argument.get_default_values().iter().filter_map(|value| value.to_str()).collect();
    let defaults =
        if is_flag || defaults.is_empty() { String::new() } else { format!("default {}", codes(defaults)) };
    let required = if argument.is_required_set() { "required" } else { "" }.to_owned();
    let rules = [required, values, defaults].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>();
    [code(&written(argument)), help, rules.join("; ")]
}

fn arguments(command: &Command) -> String {
    let is_own = |argument: &&Arg| {
        !argument.is_global_set()
            && !argument.is_hide_set()
            && !["help", "version"].contains(&argument.get_id().as_str())
    };
    let own: Vec<&Arg> = command.get_arguments().filter(is_own).collect();
    let is_common = |argument: &Arg| COMMON.contains(&argument.get_id().as_str()) && !is_setting(argument);
    let shown = own.iter().filter(|argument| !is_setting(argument) && !is_common(argument));
    let mut rows: Vec<_> = shown.map(|argument| row(argument)).collect();
    if own.iter().any(|argument| is_setting(argument)) {
        let meaning = "A flag for each setting [at the top level](settings.md#the-top-level) and in \
                       [`[defaults]`](settings.md#defaults), such as `--ttl 7d`";
        rows.push(["`--SETTING VALUE`".to_owned(), meaning.to_owned(), String::new()]);
    }
    let table =
        if rows.is_empty() { String::new() } else { table(["argument", "meaning", "values"], rows) + "\n" };
    let common: Vec<_> =
        own.iter().filter(|argument| is_common(argument)).map(|argument| written(argument)).collect();
    let also = if common.is_empty() {
        String::new()
    } else {
        format!("Takes {}.\n\n", codes(common.iter().map(String::as_str)))
    };
    table + &also
}

/// Returns the exit codes in a command's help, each with its meaning.
fn exit_codes(command: &Command) -> Vec<[String; 2]> {
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let Some((_, codes)) = after.split_once("Exit codes: ") else { return Vec::new() };
    let codes = codes.split_whitespace().collect::<Vec<_>>().join(" ");
    let code = Regex::new(r"(?:^|[,;] )([0-9]) ").expect("it is a pattern");
    let starts: Vec<_> =
        code.captures_iter(&codes).map(|found| found.get(0).expect("it is the whole")).collect();
    let ends = starts.iter().skip(1).map(|next| next.start()).chain([codes.len()]);
    let row = |(start, end): (&regex::Match<'_>, usize)| {
        let digit = start.as_str().trim_start_matches([',', ';', ' ']).trim_end();
        [digit.to_owned(), cell(codes[start.end()..end].trim_end_matches('.'))]
    };
    starts.iter().zip(ends).map(row).collect()
}

fn section(name: &str, command: &Command, depth: usize) -> String {
    let mut text = String::new();
    for command in below(command) {
        let name = format!("{name} {}", command.get_name());
        let about = about(command);
        let stop = if about.ends_with('?') { "" } else { "." };
        text += &format!("{} `{name}`\n\n{about}{stop}\n\n{}", "#".repeat(depth), arguments(command));
        let codes = exit_codes(command);
        if !codes.is_empty() {
            text += &(table(["exit code", "meaning"], codes) + "\n");
        }
        text += &section(&name, command, depth + 1);
    }
    text
}

#[test]
fn the_page_of_commands_lists_every_command() {
    let command = semel_server::cli::command();
    let mut rows = Vec::new();
    overview("semel", &command, &mut rows);
    let overview = table(["command", "purpose"], rows);
    let sections = section("semel", &command, 2);
    assert_page("commands.md", &format!("{HEAD}{overview}\n{}\n", sections.trim_end()));
}

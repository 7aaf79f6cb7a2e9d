//! `semel completions`: prints the script by which a shell completes commands and flags.

use std::io::{ErrorKind, Write};

use anyhow::Context;
use clap_complete::Shell;

use super::CommandResult;

/// The command line of `semel completions`.
#[derive(Debug, clap::Args)]
#[command(
    about = "Print the completion script of a shell, for this program's commands and flags",
    long_about = "Prints a script. Once your shell has read it, the Tab key completes commands, flags and file names. \
        Print it again after an update: it knows the commands of this version only.",
    after_help = "Examples, with the place where each shell looks for the script:\n  \
        bash        semel completions bash > ~/.local/share/bash-completion/completions/semel\n              \
        (create the folder first; it needs the package bash-completion)\n  \
        zsh         semel completions zsh > ~/.zfunc/_semel\n              \
        (with `fpath+=~/.zfunc` before `autoload -U compinit && compinit` in ~/.zshrc)\n  \
        fish        semel completions fish > ~/.config/fish/completions/semel.fish\n  \
        elvish      semel completions elvish > ~/.config/elvish/lib/semel.elv\n              \
        (with `use semel` in ~/.config/elvish/rc.elv)\n  \
        powershell  semel completions powershell >> $PROFILE\n\n\
        To try it in this shell alone: source <(semel completions bash)\n\n\
        Exit codes: 0 printed, 2 wrong use."
)]
pub(super) struct CompletionsArgs {
    #[arg(value_name = "SHELL", help = "Shell that reads the script")]
    shell: Shell,
}

pub(super) fn run(args: &CompletionsArgs) -> anyhow::Result<CommandResult> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut super::shown_command(), "semel", &mut script);
    // A full disk is an error; a reader that closes the pipe early, such as `head`, is none.
    match std::io::stdout().write_all(&script) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("cannot write the script"),
        _ => Ok(CommandResult::Yes),
    }
}

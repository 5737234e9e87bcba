//! `tidegate manual` and `tidegate completions`: what packages install beside the program.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory as _, ValueEnum};

use crate::exit;

/// Print the manual page, or write one for each command
///
///     tidegate manual | man -l -
///     tidegate manual --to /usr/share/man/man1
///
/// Exit status: 0 done, 2 wrong usage, 3 it can't be written.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct ManualArguments {
    /// Folder to write `tidegate.1`, `tidegate-gateway.1` and so on to
    #[arg(long, value_name = "FOLDER")]
    to: Option<PathBuf>,
}

/// Print a script that completes commands and options in a shell
///
///     tidegate completions bash > /etc/bash_completion.d/tidegate
///     tidegate completions zsh > "${fpath[1]}/_tidegate"
///     tidegate completions fish > ~/.config/fish/completions/tidegate.fish
///
/// Exit status: 0 done, 2 wrong usage, 3 it can't be written.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct CompletionsArguments {
    /// Shell
    shell: Shell,
}

#[derive(Clone, Copy, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Runs `tidegate manual`.
pub(crate) fn run(arguments: &ManualArguments) -> ExitCode {
    let command = crate::Arguments::command();
    let done = match &arguments.to {
        Some(folder) => {
            std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(command, folder))
        }
        None => clap_mangen::Man::new(command).render(&mut io::stdout()),
    };
    ended(done)
}

/// Runs `tidegate completions`.
pub(crate) fn complete(arguments: &CompletionsArguments) -> ExitCode {
    let mut command = crate::Arguments::command();
    let mut text = Vec::new();
    let shell = match arguments.shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    clap_complete::generate(shell, &mut command, "tidegate", &mut text);
    ended(io::stdout().write_all(&text))
}

fn ended(done: io::Result<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // A reader that closed the pipe has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "tidegate: {error}");
            ExitCode::from(exit::FAILED)
        }
    }
}

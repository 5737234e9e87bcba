//! Output for people: one place for colours, so that they appear on a terminal and nowhere else.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is where it is printed"
)]

use std::io::{IsTerminal as _, Write as _};

/// The look of a piece of text on a terminal.
#[derive(Clone, Copy)]
pub(crate) enum Look {
    Bold,
    Dim,
    Good,
    Bad,
}

/// Returns the text, coloured if standard output is a terminal.
pub(crate) fn paint(look: Look, text: &str) -> String {
    let code = match look {
        Look::Bold => "1",
        Look::Dim => "2",
        Look::Good => "32",
        Look::Bad => "31;1",
    };
    if std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none() {
        format!("\x1b[{code}m{text}\x1b[0m")
    } else {
        text.to_owned()
    }
}

/// Prints a line of the program's own output.
pub(crate) fn say(text: &str) {
    println!("{text}");
    flush();
}

/// Prints the last words before a failure.
pub(crate) fn fail(text: &str) {
    flush();
    eprintln!("{}", paint(Look::Bad, text));
}

/// Overwrites the current line on a terminal; does nothing elsewhere.
pub(crate) fn progress(text: &str) {
    if std::io::stdout().is_terminal() {
        print!("\r\x1b[2K{text}");
        flush();
    }
}

/// Flushes the output, so that it appears before a child process adds its own.
pub(crate) fn flush() {
    // A closed pipe has no reader, so there is nobody to tell.
    let _ = std::io::stdout().flush();
}

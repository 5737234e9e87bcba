//! What people see: one place for colours, so that they are there on a terminal and nowhere else.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is where it is printed"
)]

use std::io::{IsTerminal as _, Write as _};

/// How a piece of text is to look on a terminal.
#[derive(Clone, Copy)]
pub(crate) enum Look {
    Bold,
    Dim,
    Good,
    Bad,
}

/// The text, coloured if standard output is a terminal.
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

/// A line of the program's own.
pub(crate) fn say(text: &str) {
    println!("{text}");
    flush();
}

/// The last words.
pub(crate) fn fail(text: &str) {
    flush();
    eprintln!("{}", paint(Look::Bad, text));
}

/// Overwrites the current line on a terminal; nothing elsewhere.
pub(crate) fn progress(text: &str) {
    if std::io::stdout().is_terminal() {
        print!("\r\x1b[2K{text}");
        flush();
    }
}

/// Output is seen before a child process adds its own.
pub(crate) fn flush() {
    // A closed pipe: nobody reads, nothing to tell.
    let _ = std::io::stdout().flush();
}

//! The answer of a program that was built without the console.

use std::io::{self, Write as _};
use std::process::ExitCode;

use super::Arguments;
use crate::exit;

/// Says what is missing and how to get it.
pub(crate) fn run(_: &Arguments) -> ExitCode {
    let _ = writeln!(
        io::stderr(),
        "tidegate: this program was built without the console; build it with the cargo feature `console`, \
         which is on by default"
    );
    ExitCode::from(exit::FAILED)
}

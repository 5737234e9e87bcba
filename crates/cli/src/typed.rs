//! The command line as people type it: long options with one dash, as in the programs that people come from,
//! and the cluster from the environment.

use std::ffi::{OsStr, OsString};

use clap::Command;

/// Rewrites the arguments to what `command` reads: `-config FILE` becomes `--config FILE`, where the command
/// has such an option.
pub(crate) fn with_two_dashes(command: &Command, mut arguments: Vec<OsString>) -> Vec<OsString> {
    let mut command = command;
    for argument in arguments.iter_mut().skip(1) {
        let Some(text) = argument.to_str() else { continue };
        if text == "--" {
            break;
        }
        if let Some(inner) = command.find_subcommand(text) {
            command = inner;
            continue;
        }
        let Some(name) = text.strip_prefix('-').filter(|name| !name.starts_with('-')) else {
            continue;
        };
        let letters = name.split('=').next().unwrap_or(name);
        let known = || {
            let mut options = command.get_arguments().filter_map(clap::Arg::get_long);
            options.any(|long| long == letters) || ["help", "version"].contains(&letters)
        };
        if letters.len() > 1 && known() {
            *argument = OsStr::new(&format!("-{text}")).to_owned();
        }
    }
    arguments
}

/// The variable that names the cluster where the command line does not.
pub(crate) const CLUSTER: &str = "TIDEGATE_CLUSTER";

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn typed(line: &str) -> String {
        let arguments = line.split(' ').map(OsString::from).collect();
        let read = with_two_dashes(&crate::Arguments::command(), arguments);
        read.join(OsStr::new(" ")).into_string().unwrap()
    }

    #[test]
    fn long_options_may_have_one_dash() {
        for (line, read) in [
            (
                "tidegate gateway -config a.yml",
                "tidegate gateway --config a.yml",
            ),
            (
                "tidegate gateway -config=a.yml",
                "tidegate gateway --config=a.yml",
            ),
            ("tidegate gateway -c a.yml", "tidegate gateway -c a.yml"),
            (
                "tidegate gateway --config a.yml",
                "tidegate gateway --config a.yml",
            ),
            (
                "tidegate explain -index a - -json",
                "tidegate explain --index a - --json",
            ),
            ("tidegate -version", "tidegate --version"),
            ("tidegate gateway -nonsense", "tidegate gateway -nonsense"),
            ("tidegate explain -- -json", "tidegate explain -- -json"),
        ] {
            assert_eq!(typed(line), read, "{line}");
        }
    }
}

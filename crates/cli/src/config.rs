//! `tidegate config`: the file's schema, its effective values, what a key means, and changes of a running
//! gateway.

mod apply;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use config::{self, Config, Explanation, NoSuchKey, Rejected};

use crate::admin;

/// Look at the configuration, or change that of a running gateway
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Print the JSON Schema of the file, for completion and checks in editors
    Schema,
    /// Print a file with every default filled in and marked; secrets are masked
    Show {
        /// Configuration file (YAML)
        file: PathBuf,
    },
    /// Print what a key means, what may be written, and its default
    Explain {
        /// Key, as in `entry.tls.cert_file` [default: the sections of the file]
        #[arg(default_value = "", hide_default_value = true)]
        key: String,
        /// Print the answer as JSON
        #[arg(long)]
        json: bool,
    },
    Apply(apply::Apply),
    Revert(apply::Revert),
}

/// Why there is nothing to print.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    File(Rejected),
    #[error(transparent)]
    Key(NoSuchKey),
}

/// Runs the command. Exit status: 0, or 1 if the file can't be used or there is no such key; `apply` and
/// `revert` have those of other commands that ask a gateway.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let result = match &arguments.command {
        Command::Apply(arguments) => return admin::exit_code(apply::apply(arguments)),
        Command::Revert(arguments) => return admin::exit_code(apply::revert(arguments)),
        Command::Schema => Ok(format!("{:#}\n", config::schema())),
        Command::Show { file } => Config::load(file)
            .map(|loaded| config::show(&loaded.file))
            .map_err(Failure::File),
        Command::Explain { key, json } => config::explain(key)
            .map(|explained| match json {
                // The value contains only text and lists of text, which JSON can always express.
                true => serde_json::to_string_pretty(&explained).unwrap_or_default() + "\n",
                false => in_words(&explained),
            })
            .map_err(Failure::Key),
    };
    // A closed pipe is not an error.
    match result {
        Ok(text) => {
            let _ = io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(failure) => {
            let _ = writeln!(io::stderr(), "{failure}");
            ExitCode::FAILURE
        }
    }
}

fn in_words(explained: &Explanation) -> String {
    let mut out = String::new();
    if !explained.path.is_empty() {
        out += &format!("{}\n\n", explained.path);
    }
    out += &format!("  {}\n", explained.description);
    if let Some(why) = &explained.ignored {
        return out + &format!("\n  has no effect: {why}\n");
    }
    if !explained.path.is_empty() {
        out += &format!("\n  value    {}\n", explained.value);
        out += &format!("  default  {}\n", explained.default.as_deref().unwrap_or("none"));
    }
    if !explained.keys.is_empty() {
        let width = explained
            .keys
            .iter()
            .map(|(key, _)| key.len())
            .max()
            .unwrap_or_default();
        out += "\n  keys\n";
        for (key, meaning) in &explained.keys {
            out += &format!("    {key:width$}  {meaning}\n");
        }
    }
    out
}

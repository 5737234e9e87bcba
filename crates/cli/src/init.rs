//! `tidegate init`: a first configuration, from a few questions or flags.

use std::fmt::Write as _;
use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::config::Config;
use anyhow::{Context as _, Result, bail, ensure};

use crate::output::why;
use crate::{check, exit, typed};

/// Write a first configuration, with comments, and check it
///
///     tidegate init
///     tidegate init --cluster https://es1:9200 --user gateway --mode async \
///         --output /etc/tidegate/tidegate.yml
///
/// On a terminal, the command asks for whatever the flags leave open. Elsewhere,
/// --cluster is required, and everything else has a default. The command never
/// writes a password: the gateway reads it from TIDEGATE_PASSWORD at its start. Of
/// an account in the cluster's URL, it takes the user name, and not the password.
/// The command then checks the file, as `check --online` does: that the cluster
/// answers, that the account has its rights, and that disk and addresses can be
/// used. It overwrites an existing file only with --force.
///
/// Exit status: 0 written, and checked if possible, 1 the check found something to
/// fix (the file is written), or the file exists already, 2 wrong usage, 3 the
/// cluster does not answer, or the file can't be written.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// URL of any node of the cluster
    #[arg(long, value_name = "URL", env = typed::CLUSTER, hide_env_values = true)]
    cluster: Option<String>,
    /// User name of the gateway's own account at the cluster; the gateway reads the password from
    /// TIDEGATE_PASSWORD at its start
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// PEM file of the certificate authorities to trust, in place of the system's
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// When to answer clients: `sync` once the cluster has answered, `async` once the request is safe in
    /// a queue on this machine's disk
    #[arg(long, value_name = "MODE", value_parser = ["sync", "async"])]
    mode: Option<String>,
    /// Address and port to listen on
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// TLS for clients: none, self-signed, or CERT,KEY (two PEM files)
    #[arg(long, value_name = "HOW")]
    tls: Option<String>,
    /// Address and port of the admin API
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:2900")]
    admin: String,
    /// Folder for queues and other data that must last [default: /var/lib/tidegate/data for a file below
    /// /etc/tidegate, else `data` in the working directory]
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,
    /// File to write
    #[arg(long, short, value_name = "FILE", default_value = "tidegate.yml")]
    output: PathBuf,
    /// Overwrite the file if it exists
    #[arg(long)]
    force: bool,
    /// Do not check the file after writing it
    #[arg(long)]
    no_check: bool,
}

/// The answers from which the file is written.
struct Answers {
    cluster: String,
    user: Option<String>,
    ca: Option<PathBuf>,
    queued: bool,
    listen: String,
    tls: Tls,
    data: Option<PathBuf>,
    admin: String,
}

/// TLS for clients.
enum Tls {
    None,
    SelfSigned,
    Files(String, String),
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    if arguments.output.exists() && !arguments.force {
        let _ = writeln!(
            io::stderr(),
            "tidegate: {} exists already: choose another --output, or overwrite it with --force",
            arguments.output.display()
        );
        return ExitCode::from(exit::NO);
    }
    let made = answers(arguments).and_then(|answers| Ok((text_of(&answers)?, answers)));
    let (text, answers) = match made {
        Ok(made) => made,
        Err(error) => return fail(exit::USAGE, &error),
    };
    if let Err(error) = write(&arguments.output, &text) {
        return fail(exit::FAILED, &error);
    }
    let file = arguments.output.display();
    let _ = writeln!(
        io::stderr(),
        "{file} is written; its comments describe further settings"
    );
    let waits_for_password = answers.user.is_some() && std::env::var_os("TIDEGATE_PASSWORD").is_none();
    if waits_for_password {
        let _ = writeln!(
            io::stderr(),
            "it was not checked, because TIDEGATE_PASSWORD is not set: set it, and run tidegate check --online {file}"
        );
        return ExitCode::SUCCESS;
    }
    if arguments.no_check {
        return ExitCode::SUCCESS;
    }
    check::run(&check::Arguments {
        file: arguments.output.clone(),
        online: true,
        index: Vec::new(),
        json: false,
        quiet: false,
    })
}

fn fail(status: u8, error: &anyhow::Error) -> ExitCode {
    let _ = writeln!(io::stderr(), "tidegate: {}", why(error));
    ExitCode::from(status)
}

fn write(file: &Path, text: &str) -> Result<()> {
    if let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    std::fs::write(file, text).with_context(|| file.display().to_string())
}

/// Collects the answers from the flags, and asks for the missing ones.
fn answers(arguments: &Arguments) -> Result<Answers> {
    let asks = io::stdin().is_terminal() && io::stderr().is_terminal();
    let ask = |given: Option<String>, question: &str, usual: &str| -> Result<String> {
        match given {
            Some(given) => Ok(given),
            None if asks => put(question, usual),
            None => Ok(usual.to_owned()),
        }
    };
    ensure!(
        asks || arguments.cluster.is_some(),
        "there is no terminal to ask on: give --cluster URL, and a flag for each default that does not fit"
    );
    let given = ask(
        arguments.cluster.clone(),
        "URL of a node of the cluster",
        "http://127.0.0.1:9200",
    )?;
    let (cluster, named) = without_account(&given)?;
    let some = |text: String| Some(text).filter(|text| !text.is_empty());
    let user = some(ask(
        arguments.user.clone().or(named),
        "user name of the gateway's own account at the cluster (empty: none)",
        "",
    )?);
    let ca = arguments.ca.as_ref().map(|ca| ca.display().to_string());
    let ca = match cluster.starts_with("https://") {
        true => some(ask(
            ca,
            "PEM file of the authority that signed the cluster's certificate (empty: the system's)",
            "",
        )?),
        false => ca,
    };
    let mode = ask(
        arguments.mode.clone(),
        "when to answer clients: once the cluster has answered (sync), or once the request is in a durable queue (async)",
        "sync",
    )?;
    ensure!(
        ["sync", "async"].contains(&mode.as_str()),
        "`{mode}` is neither sync nor async"
    );
    let listen = ask(
        arguments.listen.clone(),
        "address and port for clients",
        "0.0.0.0:8000",
    )?;
    let tls = ask(
        arguments.tls.clone(),
        "TLS to clients: none, self-signed, or CERT,KEY",
        "none",
    )?;
    Ok(Answers {
        cluster,
        user,
        ca: ca.map(PathBuf::from),
        queued: mode == "async",
        listen: match listen.strip_prefix(':') {
            Some(port) => format!("0.0.0.0:{port}"),
            None => listen,
        },
        tls: Tls::read(&tls)?,
        data: arguments.data.clone().or_else(|| data_of(&arguments.output)),
        admin: arguments.admin.clone(),
    })
}

/// Takes the account out of a URL, as in `https://elastic:secret@es1:9200`. Returns the URL without it, and the
/// user's name. The file is for everybody to read, so the password has no place in it.
fn without_account(url: &str) -> Result<(String, Option<String>)> {
    let start = url.find("://").map_or(0, |at| at + 3);
    let end = url[start..]
        .find(['/', '?', '#'])
        .map_or(url.len(), |at| start + at);
    let Some((account, host)) = url[start..end].rsplit_once('@') else {
        return Ok((url.to_owned(), None));
    };
    let (user, password) = account.split_once(':').unwrap_or((account, ""));
    let user =
        unescaped(user).context("the user name in the cluster's URL is no text: give it with --user")?;
    if !password.is_empty() {
        writeln!(
            io::stderr(),
            "the password in the cluster's URL is not written: the gateway reads it from TIDEGATE_PASSWORD"
        )?;
    }
    let url = format!("{}{host}{}", &url[..start], &url[end..]);
    Ok((url, Some(user).filter(|user| !user.is_empty())))
}

/// Returns what percent signs of a URL stand for; none if that is no text.
fn unescaped(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        match after.get(..2).filter(|_| *first == b'%') {
            Some(digits) => {
                let digits = std::str::from_utf8(digits).ok()?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).ok()
}

/// Asks a question on the terminal.
fn put(question: &str, usual: &str) -> Result<String> {
    match usual {
        "" => write!(io::stderr(), "{question}: ")?,
        _ => write!(io::stderr(), "{question} [{usual}]: ")?,
    }
    let mut answer = String::new();
    ensure!(
        io::stdin().lock().read_line(&mut answer)? > 0,
        "the input ended before the last answer"
    );
    Ok(match answer.trim() {
        "" => usual.to_owned(),
        answer => answer.to_owned(),
    })
}

/// Returns the text of the file, after parsing it once.
fn text_of(answers: &Answers) -> Result<String> {
    let mut text = String::new();
    answers.write(&mut text)?;
    // A placeholder stands for variables that are only set when the gateway starts.
    let known = |name: &str| Some(std::env::var(name).unwrap_or_else(|_| "-".to_owned()));
    if let Err(rejected) = Config::parse(&text, None, &known) {
        bail!("no valid configuration follows from these answers:\n{rejected}");
    }
    Ok(text)
}

// === impl Tls ===

impl Tls {
    fn read(text: &str) -> Result<Self> {
        Ok(match (text, text.split_once(',')) {
            ("none", _) => Self::None,
            ("self-signed", _) => Self::SelfSigned,
            (_, Some((cert, key))) => Self::Files(cert.trim().to_owned(), key.trim().to_owned()),
            _ => bail!(
                "`{text}` is none of: none, self-signed, CERT,KEY (two files with a comma between them)"
            ),
        })
    }
}

// === impl Answers ===

impl Answers {
    fn write(&self, out: &mut String) -> std::fmt::Result {
        out.push_str(HEAD);
        writeln!(
            out,
            "\n# The address that clients connect to.\nentry:\n  - name: clients\n    router: all\n    network:"
        )?;
        writeln!(out, "      binding: {}", quoted(&self.listen))?;
        match &self.tls {
            Tls::None => out.push_str(NO_TLS),
            Tls::SelfSigned => out.push_str(SELF_SIGNED),
            Tls::Files(cert, key) => {
                writeln!(
                    out,
                    "    tls:\n      enabled: true\n      # A renewed certificate is loaded without a restart."
                )?;
                writeln!(
                    out,
                    "      cert_file: {}\n      key_file: {}",
                    quoted(cert),
                    quoted(key)
                )?;
            }
        }
        out.push_str(ROUTER);
        out.push_str(if self.queued { QUEUED } else { ANSWERED });
        out.push_str(FORWARD);
        writeln!(
            out,
            "\n# The cluster. Any of its nodes will do; the gateway finds the others.\nelasticsearch:\n  - name: main"
        )?;
        writeln!(out, "    endpoints:\n      - {}", quoted(&self.cluster))?;
        match &self.user {
            None => out.push_str(NO_ACCOUNT),
            Some(user) => {
                writeln!(
                    out,
                    "    # The gateway's own account. `tidegate check --online` reports any right that it lacks."
                )?;
                writeln!(
                    out,
                    "    basic_auth:\n      username: {}\n      password: {PASSWORD}",
                    quoted(user)
                )?;
            }
        }
        if let Some(ca) = &self.ca {
            let ca = quoted(&ca.display().to_string());
            writeln!(
                out,
                "    tls:\n      # The authority that signed the cluster's certificate.\n      ca_file: {ca}"
            )?;
        }
        if self.queued {
            out.push_str(PIPELINE);
        }
        match &self.data {
            Some(data) => writeln!(out, "\n{DATA}path.data: {}", quoted(&data.display().to_string()))?,
            None => writeln!(out, "\n{DATA}# path.data: data")?,
        }
        writeln!(out, "{ADMIN}  binding: {}", quoted(&self.admin))
    }
}

/// Returns the absolute data folder of a service, so that a command run from a shell finds the same queues as
/// the service.
fn data_of(output: &Path) -> Option<PathBuf> {
    output
        .starts_with("/etc/tidegate")
        .then(|| PathBuf::from("/var/lib/tidegate/data"))
}

/// Text in YAML's single quotes.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// The password comes from the environment, which `systemctl` and containers can set without a readable file.
const PASSWORD: &str = "'$[[env.TIDEGATE_PASSWORD]]'";
const HEAD: &str = "\
# Configuration of Tidegate, written by `tidegate init`. docs/configuration.md describes all keys.
#   tidegate check --online FILE      check it: also the cluster, the account's rights, the disk
#   tidegate gateway --config FILE    run it; changes to the file take effect without a restart
";
const NO_TLS: &str = "    # tls:
    #   enabled: true
    #   cert_file: /etc/tidegate/clients.pem
    #   key_file: /etc/tidegate/clients.key
";
const SELF_SIGNED: &str = "    tls:
      enabled: true
      # For trials: the gateway makes a new certificate at each start. In production, name yours:
      # cert_file: /etc/tidegate/clients.pem
      # key_file: /etc/tidegate/clients.key
";
const ROUTER: &str = "
# Which flow handles a request. `rules` can choose flows by index, method and more.
router:
  - name: all
    default_flow: write

# What happens to a request: each filter handles the requests that it is for, and passes the others on.
flow:
  - name: write
    filter:
      # Splits bulk requests, and sends each document to the node that holds its shard.
      - bulk_reshuffle:
          elasticsearch: main
";
const ANSWERED: &str =
    "          # `sync` answers once the cluster has answered; `async` uses a queue, and needs a pipeline.
          mode: sync
";
const QUEUED: &str =
    "          # `async` answers once the request is in a durable queue on this machine's disk.
          mode: async
          queue:
            name: main
            # The most disk space that the queue may take, and how much it must leave free.
            max_size: 20gb
            min_free: 1gb
";
const FORWARD: &str = "      # Sends all other requests to the cluster unchanged.
      - elasticsearch:
          elasticsearch: main
";
const NO_ACCOUNT: &str = "    # The gateway's own account, if the cluster requires one:
    # basic_auth:
    #   username: gateway
    #   password: '$[[env.TIDEGATE_PASSWORD]]'
";
const PIPELINE: &str = "
# Delivers the queue to the cluster.
pipeline:
  - name: deliver
    processor:
      - bulk_indexing:
          elasticsearch: main
          queue_selector:
            keys: [main]
";
const DATA: &str = "# The folder for queues and other data that must last; a relative path starts at the working directory.\n";
const ADMIN: &str = "
# The admin API: health, metrics, queues. By default only this machine can reach it.
admin:
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_in_a_url_leaves_its_name_only() {
        for (url, left, user) in [
            ("http://es1:9200", "http://es1:9200", None),
            (
                "http://elastic:s3cret@es1:9200",
                "http://es1:9200",
                Some("elastic"),
            ),
            (
                "https://a%40b:x@y:z@[::1]:1/p@q",
                "https://[::1]:1/p@q",
                Some("a@b"),
            ),
            ("https://only@es1", "https://es1", Some("only")),
            ("http://:s3cret@es1?a=b@c", "http://es1?a=b@c", None),
            ("elastic:s3cret@es1:9200", "es1:9200", Some("elastic")),
        ] {
            let (without, named) = without_account(url).unwrap();
            assert_eq!((&*without, named.as_deref()), (left, user), "{url}");
        }
        assert!(without_account("http://a%ff:b@es1").is_err());
    }
}

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
/// writes a password: the gateway reads it from TIDEGATE_PASSWORD at its start.
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

/// What the file is made of.
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

/// TLS to clients.
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
            "tidegate: {} is there already: write another --output, or --force",
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
        "{file} is written; its comments name what else can be set"
    );
    let waits_for_password = answers.user.is_some() && std::env::var_os("TIDEGATE_PASSWORD").is_none();
    if waits_for_password {
        let _ = writeln!(
            io::stderr(),
            "it was not tried, since TIDEGATE_PASSWORD is not set: set it, and run tidegate check --online {file}"
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

/// What the flags say, and what is asked for.
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
        "there is no terminal: give --cluster URL, and flags for what differs from the defaults"
    );
    let cluster = ask(
        arguments.cluster.clone(),
        "URL of a node of the cluster",
        "http://127.0.0.1:9200",
    )?;
    let some = |text: String| Some(text).filter(|text| !text.is_empty());
    let user = some(ask(
        arguments.user.clone(),
        "user of the gateway's own account there (nothing: none)",
        "",
    )?);
    let ca = arguments.ca.as_ref().map(|ca| ca.display().to_string());
    let ca = match cluster.starts_with("https://") {
        true => some(ask(
            ca,
            "file of the authority that signed its certificate (nothing: the system's)",
            "",
        )?),
        false => ca,
    };
    let mode = ask(
        arguments.mode.clone(),
        "answer clients when the cluster has answered (sync), or once it is safe in a queue (async)",
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

/// Asks on the terminal.
fn put(question: &str, usual: &str) -> Result<String> {
    match usual {
        "" => write!(io::stderr(), "{question}: ")?,
        _ => write!(io::stderr(), "{question} [{usual}]: ")?,
    }
    let mut answer = String::new();
    ensure!(
        io::stdin().lock().read_line(&mut answer)? > 0,
        "the answers ended"
    );
    Ok(match answer.trim() {
        "" => usual.to_owned(),
        answer => answer.to_owned(),
    })
}

/// The file, once it has been read back.
fn text_of(answers: &Answers) -> Result<String> {
    let mut text = String::new();
    answers.write(&mut text)?;
    // What is only known when the gateway starts is stood for.
    let known = |name: &str| Some(std::env::var(name).unwrap_or_else(|_| "-".to_owned()));
    if let Err(rejected) = Config::parse(&text, None, &known) {
        bail!("these answers make no configuration:\n{rejected}");
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
            _ => bail!("`{text}` is neither none nor self-signed nor two files with a comma"),
        })
    }
}

// === impl Answers ===

impl Answers {
    fn write(&self, out: &mut String) -> std::fmt::Result {
        out.push_str(HEAD);
        writeln!(
            out,
            "\n# Where clients go.\nentry:\n  - name: clients\n    router: all\n    network:"
        )?;
        writeln!(out, "      binding: {}", quoted(&self.listen))?;
        match &self.tls {
            Tls::None => out.push_str(NO_TLS),
            Tls::SelfSigned => out.push_str(SELF_SIGNED),
            Tls::Files(cert, key) => {
                writeln!(
                    out,
                    "    tls:\n      enabled: true\n      # Changed files are used without a restart."
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
            "\n# The cluster: any of its nodes; the others are found.\nelasticsearch:\n  - name: main"
        )?;
        writeln!(out, "    endpoints:\n      - {}", quoted(&self.cluster))?;
        match &self.user {
            None => out.push_str(NO_ACCOUNT),
            Some(user) => {
                writeln!(
                    out,
                    "    # The gateway's own account; `tidegate check --online` says which rights it needs."
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
                "    tls:\n      # Who signed the cluster's certificate.\n      ca_file: {ca}"
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

/// A service's folder, named in whole: whoever reads its file from a shell finds the same queues as the
/// service.
fn data_of(output: &Path) -> Option<PathBuf> {
    output
        .starts_with("/etc/tidegate")
        .then(|| PathBuf::from("/var/lib/tidegate/data"))
}

/// Text in YAML's single quotes.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// From the environment, which `systemctl` and containers can set without anybody reading it in a file.
const PASSWORD: &str = "'$[[env.TIDEGATE_PASSWORD]]'";
const HEAD: &str = "\
# Tidegate's configuration, begun by `tidegate init`. All keys are in docs/configuration.md.
#   tidegate check --online FILE      is it right, and is the world as it needs it?
#   tidegate gateway --config FILE    run it; a changed file is put in force while it runs
";
const NO_TLS: &str = "    # tls:
    #   enabled: true
    #   cert_file: /etc/tidegate/clients.pem
    #   key_file: /etc/tidegate/clients.key
";
const SELF_SIGNED: &str = "    tls:
      enabled: true
      # A certificate is made at each start, for trying things out. For more, name one:
      # cert_file: /etc/tidegate/clients.pem
      # key_file: /etc/tidegate/clients.key
";
const ROUTER: &str = "
# Which flow a request takes; `rules` can tell indices and methods apart.
router:
  - name: all
    default_flow: write

# What is done with a request: each filter takes what it is for, and leaves the rest to the next.
flow:
  - name: write
    filter:
      # Bulk requests are taken apart, and each document goes to the node that holds its shard.
      - bulk_reshuffle:
          elasticsearch: main
";
const ANSWERED: &str =
    "          # The client gets the cluster's own answer. `async` queues instead, and needs a pipeline.
          mode: sync
";
const QUEUED: &str =
    "          # The client is answered once its request is safe in a queue on this machine's disk.
          mode: async
          queue:
            name: main
            # What it may take of the disk, and what stays free there.
            max_size: 20gb
            min_free: 1gb
";
const FORWARD: &str = "      # Everything else goes through as it came.
      - elasticsearch:
          elasticsearch: main
";
const NO_ACCOUNT: &str = "    # The gateway's own account, where the cluster asks for one:
    # basic_auth:
    #   username: gateway
    #   password: '$[[env.TIDEGATE_PASSWORD]]'
";
const PIPELINE: &str = "
# Who delivers what is queued.
pipeline:
  - name: deliver
    processor:
      - bulk_indexing:
          elasticsearch: main
          queue_selector:
            keys: [main]
";
const DATA: &str = "# Where queues and what else has to last are kept, from the working directory on.\n";
const ADMIN: &str = "
# Health, metrics, queues: for this machine only, as it is.
admin:
";

//! `tidegate gateway`: runs the gateway until it is told to stop.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::anyhow;
use clap::CommandFactory as _;
use clap::error::ErrorKind;
use config::reload::FileWatch;
use config::{Anonymous, Config, DirectRouting, Loaded, QuickStart, listen_address};
use gateway::{Gateway, NoUpgrade, NotApplied, Reloaded};
use tokio::signal::unix::{Signal, SignalKind, signal};
use wire::guard::{Work, broken, caught, fault};

use crate::access::Access;
use crate::applied::{self, Applying};
use crate::handover::{self, Left, Program};
use crate::logging::{self, Level};
use crate::{exit, typed};

/// Run the gateway
///
/// The gateway needs a configuration file, or the address of a single cluster:
///
///     tidegate gateway --config tidegate.yml
///     tidegate gateway --cluster http://127.0.0.1:9200
///
/// The gateway splits bulk requests by node, and sends each part straight to the
/// node that holds its primaries. It forwards all other requests unchanged, with
/// the clients' own credentials.
///
/// SIGTERM and SIGINT stop the gateway gracefully: it accepts no new connections,
/// answers the requests under way, and ends. SIGHUP makes it read the configuration
/// file, if there is one, and all certificates again. If another program has been
/// installed in its place, that program takes over, as with SIGUSR2 or
/// `tidegate upgrade`.
///
/// Exit status: 0 stopped as told, 1 the configuration file can't be used, 2 wrong
/// usage, 3 it could not start (for example, an address is taken), 4 it ended by
/// itself, because a bug left it without a thread that it needs: start it again.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
#[group(skip)]
pub(crate) struct Arguments {
    #[command(flatten)]
    from: From,
    /// Address and port to listen on; `:8000` means all addresses [default: 127.0.0.1:8000]
    #[arg(long, value_name = "ADDRESS", conflicts_with = "config", value_parser = address)]
    listen: Option<SocketAddr>,
    /// Address and port of the admin API [default: 127.0.0.1:2900]
    #[arg(long, value_name = "ADDRESS", conflicts_with = "config", value_parser = address)]
    admin: Option<SocketAddr>,
    #[command(flatten)]
    access: Access,
    /// Send each bulk to the nodes by itself; do not combine small ones
    #[arg(long, conflicts_with = "config")]
    no_combine: bool,
    /// Assign documents without id and routing to shards in turn: `mint-packed` makes ids, `routing` sets
    /// a routing value [default: off]
    #[arg(long, value_name = "HOW", conflicts_with = "config", value_parser = ["off", "mint-packed", "routing"])]
    direct_routing: Option<String>,
    /// Turn writes of single documents into bulks, which are combined with others
    #[arg(long, conflicts_with = "config")]
    rewrite_to_bulk: bool,
    /// Use the gateway's own account for requests without credentials: anyone who reaches the port can
    /// then write
    #[arg(long, conflicts_with = "config")]
    share_account: bool,
    /// Lowest level of log lines to print
    #[arg(long, value_name = "LEVEL", value_parser = ["trace", "debug", "info", "warn", "error"])]
    log_level: Option<String>,
    /// Check the configuration as at the start, and end; an upgrade asks this of a new program
    #[arg(long, hide = true)]
    trial: bool,
}

/// Where the configuration comes from.
#[derive(clap::Args)]
#[group(multiple = false)]
struct From {
    /// Configuration file (YAML)
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// URL of any node of the cluster, in place of a file; it may contain user:password@; or set
    /// TIDEGATE_CLUSTER
    #[arg(long, value_name = "URL")]
    cluster: Option<String>,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let left = match Left::find() {
        Ok(left) => left,
        Err(error) => return fail(exit::FAILED, &format!("{error:#}")),
    };
    let program = Program::running(left.as_ref().is_some_and(|left| left.sockets.put_back));
    let file = arguments.from.config.as_deref();
    // A trial beside a running gateway leaves the file to that gateway.
    let taken_back = match file.filter(|_| !arguments.trial).map(applied::go_back_at_start) {
        Some(Err(error)) => return instead(left.as_ref(), exit::FAILED, &error.to_string()),
        Some(Ok(taken_back)) => taken_back,
        None => false,
    };
    let kept = left.as_ref().and_then(Left::text);
    let is_put_back = kept.is_some();
    let loaded = match load(arguments, kept) {
        Ok(loaded) => loaded,
        Err((status, reason)) => return instead(left.as_ref(), status, &reason),
    };
    if arguments.trial {
        return ExitCode::SUCCESS;
    }
    let level = logging::start(arguments.log_level.as_deref(), &loaded.config.logging);
    wire::guard::tell_of_panics();
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        config = arguments
            .from
            .config
            .as_ref()
            .map(|file| tracing::field::display(file.display())),
        clusters = loaded.config.clusters.len(),
        "tidegate starts"
    );
    if is_put_back {
        tracing::warn!(
            "this program was put back, with the configuration that was in force; the file is read once it runs"
        );
    }
    warn_of(&loaded);
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(exit::FAILED, &error.to_string()),
    };
    let program = program.inspect_err(|error| tracing::warn!(%error, "an upgrade will need a restart"));
    let program = program.ok();
    let begin = Begin {
        taken_back,
        is_put_back,
    };
    match runtime.block_on(serve((file, begin), loaded, &level, program.as_ref(), left)) {
        Ok(Ended::AsTold | Ended::GivesWay(_)) => ExitCode::SUCCESS,
        // What is left of the gateway may wait for a thread that is gone. Nothing may keep the process from
        // ending.
        Ok(Ended::Broken) => std::process::exit(exit::BROKEN.into()),
        Err(reason) => fail(exit::FAILED, &reason.to_string()),
    }
}

/// Reads the configuration from the file or from the command line. An error has an exit status and a message
/// for the user. `kept` is the text of the file that was in force in this program before.
fn load(arguments: &Arguments, kept: Option<String>) -> Result<Loaded, (u8, String)> {
    let usage = |why: String| (exit::USAGE, why);
    if let Some(file) = &arguments.from.config {
        if arguments.access.is_given() {
            let why = "--config cannot be combined with --user, --password-file, --ca and --insecure: \
                       the file sets these for each cluster";
            return Err(usage(why.to_owned()));
        }
        let environment = |variable: &str| std::env::var(variable).ok();
        let loaded = match kept {
            None => Config::load(file),
            Some(text) => Config::parse(&text, Some(&file.display().to_string()), &environment),
        };
        let loaded =
            loaded.map_err(|rejected| (exit::NO, format!("the configuration can't be used:\n{rejected}")))?;
        let problems: Vec<String> = gateway::tls_problems(&loaded)
            .iter()
            .map(ToString::to_string)
            .collect();
        return match problems.is_empty() {
            true => Ok(loaded),
            false => Err((
                exit::NO,
                format!("the configuration can't be used:\n{}", problems.join("\n")),
            )),
        };
    }
    let Some(cluster) = arguments.from.cluster() else {
        let why = "give --config FILE or --cluster URL, or set TIDEGATE_CLUSTER";
        crate::Arguments::command()
            .error(ErrorKind::MissingRequiredArgument, why)
            .exit();
    };
    let account = arguments
        .access
        .account()
        .map_err(|error| usage(error.to_string()))?;
    if arguments.share_account && account.is_none() && !cluster.contains('@') {
        let why = "--share-account needs an account: --user, or user:password@ in the URL";
        return Err(usage(why.to_owned()));
    }
    Config::quick_start(&QuickStart {
        cluster,
        listen: arguments.listen.unwrap_or(LISTEN_DEFAULT),
        insecure_skip_verify: arguments.access.insecure,
        ca_file: arguments.access.ca.clone(),
        anonymous: match arguments.share_account {
            true => Anonymous::UseGatewayAccount,
            false => Anonymous::Pass,
        },
        admin: arguments.admin,
        combine: !arguments.no_combine,
        direct_routing: match arguments.direct_routing.as_deref() {
            Some("mint-packed") => DirectRouting::MintPacked,
            Some("routing") => DirectRouting::Routing,
            _ => DirectRouting::Off,
        },
        rewrite_to_bulk: arguments.rewrite_to_bulk,
        account,
    })
    .map_err(|rejected| usage(rejected.to_string()))
}

// === impl From ===

impl From {
    /// The cluster's URL, from the command line or the environment.
    fn cluster(&self) -> Option<String> {
        let variable = || {
            std::env::var(typed::CLUSTER)
                .ok()
                .filter(|value| !value.is_empty())
        };
        self.cluster.clone().or_else(variable)
    }
}

fn address(text: &str) -> anyhow::Result<SocketAddr> {
    listen_address(text).map_err(|why| anyhow!("`{text}` {why}"))
}

/// Why a gateway has ended.
enum Ended<'a> {
    AsTold,
    /// A thread that the gateway needs has panicked.
    Broken,
    /// Another program takes this program's place.
    GivesWay(Next<'a>),
}

/// A program that is fit to take this program's place, and what it inherits.
struct Next<'a> {
    program: &'a Program,
    sockets: gateway::Sockets,
    running: std::os::fd::OwnedFd,
    /// The texts of the configuration in force.
    in_force: Vec<config::Secret>,
}

impl Next<'_> {
    /// Returns only if neither the next program nor this one can be run.
    fn give_way(&self) -> anyhow::Error {
        let in_force: Vec<&str> = self.in_force.iter().map(config::Secret::expose).collect();
        self.program.give_way(&self.sockets, &self.running, &in_force)
    }
}

/// The signals that the gateway handles.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    upgrade: Signal,
}

impl Signals {
    fn heard() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            upgrade: signal(SignalKind::user_defined2())?,
        })
    }

    /// Returns whether a signal to end has arrived. From here on such a signal ends the process at once,
    /// since nothing is under way any more.
    async fn were_to_end(&mut self) -> bool {
        handover::let_go_of_signals();
        tokio::select! {
            biased;
            _ = self.terminate.recv() => true,
            _ = self.interrupt.recv() => true,
            // The runtime delivers a signal that has arrived between two turns of its tasks.
            () = tokio::time::sleep(Duration::from_millis(1)) => false,
        }
    }
}

/// What has happened to the configuration file before the start.
struct Begin {
    /// Whether the former file was put back in the place of one that nobody had confirmed.
    taken_back: bool,
    /// Whether this program was put back, with a configuration that may differ from the file.
    is_put_back: bool,
}

async fn serve<'a>(
    (file, begin): (Option<&Path>, Begin),
    loaded: Loaded,
    level: &Level,
    program: Option<&'a Program>,
    left: Option<Left>,
) -> anyhow::Result<Ended<'a>> {
    let mut signals = Signals::heard()?;
    let gateway = start(&loaded, left).await?;
    for (entry, address) in gateway.entries() {
        tracing::info!(entry = &*entry, %address, "listening");
    }
    if let Some(address) = gateway.admin_address() {
        tracing::info!(%address, "admin API listening");
    }
    if begin.taken_back {
        applied::tell_of_start(&gateway);
    }
    let mut watch = file.and_then(|file| match FileWatch::new(file, &loaded) {
        Ok(watch) => Some(watch),
        Err(error) => {
            tracing::warn!(%error, "the configuration file is not watched; send SIGHUP to have it read again");
            None
        }
    });
    if begin.is_put_back {
        drop(guarded_reload(&gateway, file, &mut watch, level));
    }
    let ended = until_told(&gateway, &mut signals, (file, watch), level, program).await;
    let deadline = gateway.drain_timeout();
    if matches!(ended, Ended::Broken) {
        tracing::error!(
            deadline_s = deadline.as_secs(),
            status = exit::BROKEN,
            "the gateway is broken by a bug of its own: requests under way are finished, and the process ends, to be \
             started again"
        );
        end_after(deadline + DRAIN_GRACE);
    } else {
        tracing::info!(
            deadline_s = deadline.as_secs(),
            "stopping: requests under way are finished"
        );
    }
    if let Ended::GivesWay(next) = ended {
        let cut = gateway.leave(deadline).await;
        if signals.were_to_end().await {
            tracing::info!(connections_cut = cut, "stopped; no other program follows");
            return Ok(Ended::AsTold);
        }
        tracing::info!(connections_cut = cut, "the next program takes over");
        return Err(next.give_way());
    }
    let cut = gateway.drain(deadline).await;
    tracing::info!(connections_cut = cut, "stopped");
    Ok(ended)
}

/// Handles signals, upgrades and changed files until the gateway has to end.
async fn until_told<'a>(
    gateway: &Gateway,
    signals: &mut Signals,
    (file, mut watch): (Option<&Path>, Option<FileWatch>),
    level: &Level,
    program: Option<&'a Program>,
) -> Ended<'a> {
    let mut upgrades = gateway.upgrades();
    let (mut asks, mut applying) = (gateway.config_asks(), Applying::new(file));
    let mut look_at_applied = tokio::time::interval(APPLIED_LOOK);
    let mut look_at_certificates = tokio::time::interval(CERTIFICATES_LOOK);
    loop {
        tokio::select! {
            _ = signals.terminate.recv() => return Ended::AsTold,
            _ = signals.interrupt.recv() => return Ended::AsTold,
            () = broken() => return Ended::Broken,
            _ = signals.upgrade.recv() => {
                if let Ok(next) = next_program(program, gateway) {
                    return Ended::GivesWay(next);
                }
            }
            Some(asked) = async { upgrades.as_mut()?.recv().await } => match next_program(program, gateway) {
                Ok(next) => {
                    let _ = asked.send(Ok(())); // whoever asked may be gone
                    return Ended::GivesWay(next);
                }
                Err(error) => drop(asked.send(Err(NoUpgrade::NotFit(format!("{error:#}"))))),
            },
            _ = signals.hangup.recv() => {
                if program.is_some_and(Program::was_replaced)
                    && let Ok(next) = next_program(program, gateway)
                {
                    return Ended::GivesWay(next);
                }
                match file {
                    Some(_) => drop(guarded_reload(gateway, file, &mut watch, level)),
                    None => tracing::info!("SIGHUP: there is no configuration file to read again"),
                }
                certificates(gateway, true);
            }
            () = changed(&mut watch) => {
                if gateway.auto_reload() {
                    drop(guarded_reload(gateway, file, &mut watch, level));
                }
            }
            Some(asked) = async { asks.as_mut()?.recv().await } => {
                applying.take(asked, gateway, &mut || guarded_reload(gateway, file, &mut watch, level));
            }
            _ = look_at_applied.tick(), if applying.is_pending() => {
                applying.look(gateway, &mut || guarded_reload(gateway, file, &mut watch, level));
            }
            _ = look_at_certificates.tick() => certificates(gateway, false),
        }
    }
}

/// Starts a gateway, with what an earlier program has left, if there was one. If this program cannot start,
/// the earlier one is put back.
async fn start(loaded: &Loaded, left: Option<Left>) -> anyhow::Result<Gateway> {
    let told = |error: gateway::StartError| anyhow!("{}", error.problem(loaded));
    let Some(mut left) = left else {
        return Gateway::start(loaded).map_err(told);
    };
    let sockets = std::mem::take(&mut left.sockets);
    let started = Gateway::take_over(loaded, sockets, LEARN_TIME)
        .await
        .map_err(told);
    if let Err(error) = &started {
        tracing::error!("this program cannot take over; the previous one goes on, if there is one: {error}");
        if let Some(error) = left.go_back() {
            tracing::error!(%error, "the previous program cannot be put back");
        }
    }
    started
}

/// Returns the program that takes this one's place, if it passes its trial. Otherwise logs what is wrong
/// with it.
fn next_program<'a>(program: Option<&'a Program>, gateway: &Gateway) -> anyhow::Result<Next<'a>> {
    let program = program.ok_or_else(|| anyhow!("the system does not say which program runs"))?;
    let next = program.try_beside().and_then(|()| {
        Ok(Next {
            program,
            sockets: gateway.sockets()?,
            running: Program::keep()?,
            in_force: gateway.texts_in_force(),
        })
    });
    next.inspect_err(|error| {
        let path = program.path().display();
        tracing::error!(program = %path, "no upgrade; this program goes on: {error:#}");
    })
}

/// Reports that the start has failed, and puts the earlier program back, if there was one.
fn instead(left: Option<&Left>, status: u8, reason: &str) -> ExitCode {
    let cannot = left.and_then(Left::go_back);
    match cannot {
        Some(error) => fail(
            status,
            &format!("{reason}\nthe previous program cannot be put back: {error:#}"),
        ),
        None => fail(status, reason),
    }
}

/// Ends the process after this time, whatever it is waiting for then.
fn end_after(time: Duration) {
    let ends = move || {
        std::thread::sleep(time);
        tracing::error!("what was under way has not ended in time: the process ends without it");
        std::process::exit(exit::BROKEN.into())
    };
    if wire::guard::thread("end", Work::Other, ends).is_err() {
        std::process::exit(exit::BROKEN.into());
    }
}

/// Waits for the file to change; waits for ever if no file is watched.
async fn changed(watch: &mut Option<FileWatch>) {
    match watch {
        Some(watch) => watch.changed().await,
        None => std::future::pending().await,
    }
}

fn certificates(gateway: &Gateway, asked: bool) {
    let looked = caught(Work::Reload, || gateway.reload_certificates(asked));
    let reloaded = looked.unwrap_or_else(|panicked| {
        panicked.report(Work::Reload, "the certificates are checked again in a second");
        Vec::new()
    });
    for entry in reloaded {
        tracing::info!(entry = &*entry, "certificate reloaded");
    }
}

/// Reloads the file, if there is one, and reports a panic instead of letting it end the gateway.
fn guarded_reload(
    gateway: &Gateway,
    file: Option<&Path>,
    watch: &mut Option<FileWatch>,
    level: &Level,
) -> Result<(), NotApplied> {
    let Some(file) = file else { return Ok(()) };
    let reloaded = caught(Work::Reload, || {
        fault("reload", b"");
        reload(gateway, file, watch, level)
    });
    reloaded.unwrap_or_else(|panicked| {
        let comes_to = "configuration not reloaded, or a part of it only; a restart puts all of it in force";
        let why = format!("{panicked}: {comes_to}");
        panicked.report(Work::Reload, comes_to);
        Err(NotApplied::Refused(why))
    })
}

/// Reads the file and puts it in force. On an error, logs the reason and leaves everything as it is.
fn reload(
    gateway: &Gateway,
    file: &Path,
    watch: &mut Option<FileWatch>,
    level: &Level,
) -> Result<(), NotApplied> {
    if let Some(watch) = watch {
        watch.settle(true); // unless it turns out otherwise
    }
    let loaded = match Config::load(file) {
        Ok(loaded) => loaded,
        Err(rejected) => {
            gateway.not_reloaded();
            tracing::error!("configuration not reloaded, the old one stays in force:\n{rejected}");
            return Err(NotApplied::Problems(rejected.problems));
        }
    };
    warn_of(&loaded);
    match gateway.reload(&loaded) {
        Ok(Reloaded { changes, opened }) => {
            for key in &changes.restart {
                let line = loaded.place(key).map(|place| place.line);
                tracing::warn!(key, line, "waits for a restart; until then it stays as it is");
            }
            for (entry, address) in opened {
                tracing::info!(entry = &*entry, %address, "listening");
            }
            tracing::info!(%changes, "configuration reloaded");
            level.set(&gateway.logging());
            Ok(())
        }
        Err(error) => {
            if let Some(watch) = watch {
                watch.settle(false);
            }
            let problem = error.problem(&loaded);
            tracing::error!("configuration not reloaded, the old one stays in force:\n{problem}");
            Err(NotApplied::Problems(vec![problem]))
        }
    }
}

/// Logs the warnings of the file, without the word "warning": the line's level says it.
fn warn_of(loaded: &Loaded) {
    for warning in &loaded.warnings {
        let line = warning.place.map(|place| place.line);
        let key = (!warning.path.is_empty()).then_some(&warning.path);
        match &warning.help {
            Some(help) => tracing::warn!(key, line, "{}; {help}", warning.message),
            None => tracing::warn!(key, line, "{}", warning.message),
        }
    }
}

fn fail(status: u8, reason: &str) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "tidegate: {reason}");
    ExitCode::from(status)
}

const LISTEN_DEFAULT: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 8000));

/// How long after its drain deadline a broken gateway is ended, if nothing else has ended it.
const DRAIN_GRACE: Duration = Duration::from_secs(10);

/// The longest time to learn topologies before connections are accepted that wait in the sockets another
/// program has left.
const LEARN_TIME: Duration = Duration::from_secs(5);

/// How often an applied configuration is looked at.
const APPLIED_LOOK: Duration = Duration::from_millis(250);

/// How often the certificate files are checked for changes.
const CERTIFICATES_LOOK: Duration = Duration::from_secs(1);

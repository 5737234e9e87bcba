//! The listeners, one per entry. At the start and at each reload they are opened, adjusted and closed as the
//! configuration says.
//!
//! A listener is identified by its address, since that is what clients know: an entry with another name at
//! the same address keeps the socket and the connections.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use config::{Entry, diff, overlap};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use wire::guard::{self, Work};
use wire::{Bound, Limits, Server, ServerCounts, Worker, Workers};

use crate::front::certificate::{CertificateChange, TlsIdentity};
use crate::front::flow::Front;
use crate::live::{GatewayState, Live};
use crate::start_error::{StartError, TlsOwner};

/// All listeners.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    open: Vec<Listening>,
    /// The listeners that finish what they have in flight. Each reports how many connections it had to cut.
    closing: Vec<oneshot::Receiver<u64>>,
}

/// The name of the entry that a listener serves now. A reload may change it.
pub(crate) type Label = Arc<Mutex<Arc<str>>>;

/// One listener.
#[derive(Debug)]
struct Listening {
    /// The entry as it is in force.
    entry: Entry,
    label: Label,
    address: SocketAddr,
    server: Server,
    identity: Option<TlsIdentity>,
}

/// A planned change of the listeners. Every step that can fail because of the configuration is already done.
/// Dropping the change leaves everything as it was.
#[derive(Debug)]
pub(crate) struct ListenerChanges(Vec<ListenerChange>);

#[derive(Debug)]
struct ListenerChange {
    entry: Entry,
    socket: Socket,
    /// `None` if the open listener keeps its identity.
    identity: Option<Option<TlsIdentity>>,
}

#[derive(Debug)]
enum Socket {
    /// The index of a listener that is open.
    Open(usize),
    New(Bound),
}

/// Listening sockets that one program leaves to the next in the same process, each with its address in the
/// configuration. Connections wait in the sockets while nobody accepts.
#[derive(Debug, Default)]
pub struct Sockets {
    /// The sockets of entries.
    pub entries: Vec<(SocketAddr, OwnedFd)>,
    /// The socket of the admin port.
    pub admin: Option<(SocketAddr, OwnedFd)>,
    /// Whether this program ran before, and is put back because the next program could not start.
    pub put_back: bool,
}

/// A listener that has been opened: the name of its entry, and the address that it actually listens on.
pub type Opened = (Arc<str>, SocketAddr);

/// Who listens after a listener is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Close {
    /// Nobody.
    ForGood,
    /// Another program, with the same sockets.
    ForTheNext,
}

// === impl Close ===

impl Close {
    /// Says to those who follow the gateway why it ends.
    pub(crate) fn why(self) -> &'static str {
        match self {
            Close::ForGood => "the gateway stops",
            Close::ForTheNext => "another program takes over; connect again",
        }
    }
}

// === impl Sockets ===

impl Sockets {
    /// Returns the socket that was left for an entry with this address.
    fn of_entry(&mut self, entry: &Entry) -> Option<Result<Bound, StartError>> {
        let at = self
            .entries
            .iter()
            .position(|(binding, _)| *binding == entry.binding)?;
        let (address, socket) = self.entries.swap_remove(at);
        let share = |bound: Bound| bound.share_port(entry.reuse_port).map(|()| bound);
        let bound = Bound::on(socket).and_then(share);
        Some(bound.map_err(|source| StartError::Listen {
            entry: Arc::clone(&entry.name),
            address,
            source,
        }))
    }
}

// === impl Listeners ===

impl Listeners {
    /// Opens the sockets and reads the files that these entries need and that are not there yet.
    ///
    /// # Errors
    /// Returns what the operator has to correct.
    pub(crate) fn prepare(&self, entries: &[Entry]) -> Result<ListenerChanges, StartError> {
        self.prepare_with(entries, &mut Sockets::default())
    }

    /// Prepares like [`Listeners::prepare`], and uses the sockets of another program where they match.
    pub(crate) fn prepare_with(
        &self,
        entries: &[Entry],
        left: &mut Sockets,
    ) -> Result<ListenerChanges, StartError> {
        check_descriptors(entries);
        let now: Vec<Entry> = self.open.iter().map(|open| open.entry.clone()).collect();
        let stay = diff::listeners_that_stay(&now, entries);
        let leaving: Vec<&Listening> = self
            .open
            .iter()
            .enumerate()
            .filter(|(at, _)| !stay.contains(&Some(*at)))
            .map(|(_, open)| open)
            .collect();
        let mut turns = Vec::with_capacity(entries.len());
        for (entry, stays) in entries.iter().zip(stay) {
            let same_tls = stays.is_some_and(|at| self.open[at].entry.tls == entry.tls);
            let load = || {
                let settings = entry.tls.as_ref();
                settings
                    .map(|settings| TlsIdentity::load(&TlsOwner::Entry(Arc::clone(&entry.name)), settings))
                    .transpose()
            };
            let identity = if same_tls { None } else { Some(load()?) };
            let socket = match stays {
                Some(at) => Socket::Open(at),
                None => Socket::New(match left.of_entry(entry) {
                    Some(bound) => bound?,
                    None => bind(entry, &leaving)?,
                }),
            };
            turns.push(ListenerChange {
                entry: entry.clone(),
                socket,
                identity,
            });
        }
        Ok(ListenerChanges(turns))
    }

    /// Applies the change: new listeners accept, those that stay get their new settings, and the others stop
    /// accepting and finish what they have in flight. `live` is put in force in between.
    ///
    /// # Errors
    /// Fails when the system cannot start a thread. Everything is then as it was before.
    pub(crate) fn apply(
        &mut self,
        change: ListenerChanges,
        live: &Arc<Live>,
        workers: &Workers,
        shared: &Arc<GatewayState>,
    ) -> Result<Vec<Opened>, StartError> {
        let mut opened = Vec::new();
        let mut staying = Vec::new();
        let mut fresh = Vec::new();
        for ListenerChange {
            entry,
            socket,
            identity,
        } in change.0
        {
            match socket {
                Socket::Open(at) => staying.push((at, entry, identity)),
                Socket::New(bound) => {
                    let listening = serve(entry, bound, identity.flatten(), live, workers, shared)?;
                    opened.push((Arc::clone(&listening.entry.name), listening.address));
                    fresh.push(listening);
                }
            }
        }
        // Names first: a core that sees the new configuration must also see the new name.
        for (at, entry, _) in &staying {
            let mut label = self.open[*at].label.lock();
            *label = Arc::clone(&entry.name);
        }
        shared.live.store(Arc::clone(live));
        let mut before: Vec<Option<Listening>> =
            std::mem::take(&mut self.open).into_iter().map(Some).collect();
        for (at, entry, identity) in staying {
            let Some(mut listening) = before[at].take() else {
                continue;
            };
            listening.adjust(entry, identity);
            self.open.push(listening);
        }
        self.open.extend(fresh);
        self.closing
            .retain_mut(|closing| closing.try_recv() == Err(oneshot::error::TryRecvError::Empty));
        for listening in before.into_iter().flatten() {
            self.closing
                .extend(close(listening, live.config.worker.drain_timeout, Close::ForGood));
        }
        Ok(opened)
    }

    /// Returns the name of each entry and the address that it actually listens on.
    pub(crate) fn addresses(&self) -> Vec<Opened> {
        let address = |open: &Listening| (Arc::clone(&open.entry.name), open.address);
        self.open.iter().map(address).collect()
    }

    /// Duplicates the sockets for the next program.
    ///
    /// # Errors
    /// Fails when the system has no descriptor left.
    pub(crate) fn sockets(&self) -> io::Result<Vec<(SocketAddr, OwnedFd)>> {
        let socket = |open: &Listening| Ok((open.entry.binding, open.server.socket()?));
        self.open.iter().map(socket).collect()
    }

    /// Returns the counts of each open listener.
    pub(crate) fn counts(&self) -> Vec<(Arc<str>, SocketAddr, ServerCounts)> {
        let count = |open: &Listening| (Arc::clone(&open.entry.name), open.address, open.server.counts());
        self.open.iter().map(count).collect()
    }

    /// Returns the names of the entries that have TLS.
    pub(crate) fn secured(&self) -> Vec<Arc<str>> {
        let secured = self.open.iter().filter(|open| open.identity.is_some());
        secured.map(|open| Arc::clone(&open.entry.name)).collect()
    }

    /// Returns the certificate chain (PEM) of each entry that has TLS.
    pub(crate) fn certificates(&self) -> Vec<(Arc<str>, Vec<u8>)> {
        let chain = |open: &Listening| {
            let identity = open.identity.as_ref()?;
            Some((Arc::clone(&open.entry.name), identity.certificate_pem().to_vec()))
        };
        self.open.iter().filter_map(chain).collect()
    }

    /// Loads certificate files that have changed. With `asked`, this includes entries that do not reload by
    /// themselves. Returns the entries that changed, and logs those whose files cannot be used.
    pub(crate) fn look_at_certificates(&mut self, asked: bool) -> Vec<Arc<str>> {
        let mut changed = Vec::new();
        for open in &mut self.open {
            let Some(identity) = &mut open.identity else {
                continue;
            };
            if !asked && !identity.hot_reload() {
                continue;
            }
            match identity.look() {
                Ok(CertificateChange::Same) => {}
                Ok(look) => {
                    if look == CertificateChange::Authorities {
                        open.server.adjust(&limits(&open.entry), Some(identity.tls()));
                        open.server.renew();
                    }
                    changed.push(Arc::clone(&open.entry.name));
                }
                Err(error) if identity.is_news(error.to_string()) || asked => {
                    tracing::error!(entry = &*open.entry.name, %error, "certificate not reloaded");
                }
                Err(_) => {}
            }
        }
        changed
    }

    /// Stops accepting everywhere and lets requests under way finish within `deadline`. Returns the receivers
    /// to wait for, each of which reports how many connections its listener had to cut.
    pub(crate) fn close(&mut self, deadline: Duration, way: Close) -> Vec<oneshot::Receiver<u64>> {
        let mut closing = std::mem::take(&mut self.closing);
        let open = self.open.drain(..);
        closing.extend(open.filter_map(|listening| close(listening, deadline, way)));
        closing
    }
}

// === impl Listening ===

impl Listening {
    /// Changes the listener to serve `entry`, which has the same address.
    fn adjust(&mut self, entry: Entry, identity: Option<Option<TlsIdentity>>) {
        if self.entry.reuse_port != entry.reuse_port
            && let Err(error) = self.server.share_port(entry.reuse_port)
        {
            tracing::error!(entry = &*entry.name, %error, "`reuse_port` could not be changed");
        }
        let asks = |entry: &Entry| entry.tls.as_ref().map(|tls| tls.client_ca_file.clone());
        let asks_otherwise = asks(&self.entry) != asks(&entry);
        self.entry = entry;
        if let Some(identity) = identity {
            self.identity = identity;
        }
        let tls = self.identity.as_ref().map(TlsIdentity::tls);
        self.server.adjust(&limits(&self.entry), tls);
        if asks_otherwise {
            // Clients that connected without what is required now have to reconnect.
            self.server.renew();
        }
    }
}

fn serve(
    entry: Entry,
    bound: Bound,
    identity: Option<TlsIdentity>,
    live: &Arc<Live>,
    workers: &Workers,
    shared: &Arc<GatewayState>,
) -> Result<Listening, StartError> {
    let address = bound.local_addr();
    let label: Label = Arc::new(Mutex::new(Arc::clone(&entry.name)));
    let cores = workers.count();
    let make = {
        let (shared, live, label, name) = (
            Arc::clone(shared),
            Arc::clone(live),
            Arc::clone(&label),
            Arc::clone(&entry.name),
        );
        move |worker: &Worker| {
            let (shared, live, label) = (Arc::clone(&shared), Arc::clone(&live), Arc::clone(&label));
            Rc::new(Front::new(shared, live, label, &name, worker, cores))
        }
    };
    let tls = identity.as_ref().map(|identity| identity.tls().clone());
    let server = Server::serve(workers, bound, tls, limits(&entry), make).map_err(StartError::Threads)?;
    Ok(Listening {
        entry,
        label,
        address,
        server,
        identity,
    })
}

/// Stops accepting at once, and lets requests in flight finish on a thread of its own. Returns `None` if no
/// thread can be started; the connections are then cut.
fn close(listening: Listening, deadline: Duration, way: Close) -> Option<oneshot::Receiver<u64>> {
    let (tell, cut) = oneshot::channel();
    let drain = |runtime: tokio::runtime::Runtime| {
        move || {
            let report = runtime.block_on(async {
                match way {
                    Close::ForGood => listening.server.drain(deadline).await,
                    Close::ForTheNext => listening.server.leave(deadline, LAST_WORD_TIME).await,
                }
            });
            let entry = &*listening.entry.name;
            tracing::info!(entry, address = %listening.address, connections_cut = report.cut, "closed");
            let _ = tell.send(report.cut); // nobody waits for an entry that a reload has closed
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let thread = |runtime| guard::thread("close", Work::Housekeeping, drain(runtime));
    match runtime.and_then(thread) {
        Ok(_) => Some(cut),
        Err(error) => {
            tracing::error!(%error, "a listener's connections were cut");
            None
        }
    }
}

/// Listens for an entry, while the `leaving` listeners are still open.
fn bind(entry: &Entry, leaving: &[&Listening]) -> Result<Bound, StartError> {
    let mut address = entry.binding;
    let attempts = if entry.skip_occupied_port {
        PORTS_TRIED_MAX
    } else {
        1
    };
    for attempt in 1.. {
        match bind_beside(address, entry.reuse_port, leaving) {
            Ok(bound) => return Ok(bound),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && attempt < attempts => {
                address.set_port(address.port().wrapping_add(1));
            }
            Err(source) => {
                return Err(StartError::Listen {
                    entry: Arc::clone(&entry.name),
                    address,
                    source,
                });
            }
        }
    }
    unreachable!("the loop above returns at its last attempt at the latest")
}

/// Listens on an address. If leaving listeners occupy it, the new listener opens beside them, so that there
/// is no moment without a listener.
fn bind_beside(address: SocketAddr, reuse_port: bool, leaving: &[&Listening]) -> io::Result<Bound> {
    let in_the_way: Vec<&&Listening> = leaving
        .iter()
        .filter(|leaving| address.port() != 0 && overlap(leaving.address, address))
        .collect();
    if in_the_way.is_empty() {
        return Bound::new(address, reuse_port);
    }
    let share = |all: bool| {
        let mut each = in_the_way.iter();
        each.try_for_each(|leaving| leaving.server.share_port(all || leaving.entry.reuse_port))
    };
    let bound = share(true).and_then(|()| Bound::new(address, true));
    share(false)?;
    let bound = bound?;
    bound.share_port(reuse_port)?;
    Ok(bound)
}

fn limits(entry: &Entry) -> Limits {
    Limits {
        head_bytes_max: entry.limits.head_bytes_max,
        header_count_max: entry.limits.header_count_max,
        body_bytes_max: entry.limits.body_bytes_max,
        head_timeout: entry.timeouts.header,
        body_idle_timeout: entry.timeouts.read,
        body_rate_min: entry.timeouts.body_bytes_per_second_min,
        keep_alive_timeout: entry.timeouts.idle,
        write_timeout: entry.timeouts.write,
        connections_max: entry.connections_max,
        ..Limits::default()
    }
}

/// Checks the limit of open files. Each connection is an open file, and shells and service managers allow few
/// by default.
fn check_descriptors(entries: &[Entry]) {
    let allowed = wire::raise_descriptor_limit();
    let wanted: u64 = entries.iter().map(|entry| entry.connections_max as u64).sum();
    if allowed < wanted {
        tracing::warn!(
            allowed,
            wanted,
            "fewer open files are allowed than max_concurrency promises connections: raise LimitNOFILE (ulimit -n)"
        );
    }
}

/// How long a connection without a request under way stays open when another program takes over.
const LAST_WORD_TIME: Duration = Duration::from_secs(1);

/// The number of ports after which `skip_occupied_port` gives up.
const PORTS_TRIED_MAX: u32 = 100;

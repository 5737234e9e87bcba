//! What is told of a panic: counted by the work that met it, with its message and its place.

use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::{Cell, RefCell};
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! works {
    ($($(#[doc = $doc:literal])+ $name:ident $label:literal,)+) => {
        /// Kinds of work, each with what a panic in it comes to.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Work {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Work {
            /// All of them.
            pub const ALL: &[Work] = &[$(Work::$name,)+];

            /// Its label in the metrics and the log.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Work::$name => $label,)+
                }
            }
        }
    };
}

works! {
    /// One request: it is answered with 500 if the answer has not begun, else the connection is reset.
    Request "request",
    /// A connection between requests: it is closed.
    Connection "connection",
    /// What drives all work of a core, or takes connections for them: the gateway stops accepting and ends,
    /// with status 4.
    Core "core",
    /// The request that carries several clients' parts: each is sent apart, as after an answer that got lost.
    Combined "combined",
    /// A batch of a lane: it is read again one record at a time, one that does it again is halved, and an
    /// operation that does it alone becomes a dead letter.
    Lane "lane",
    /// The request that carries several lanes' parcels: each is sent apart.
    Parcels "parcels",
    /// What else a delivery does: it is started again as a whole, from what is committed.
    Delivery "delivery",
    /// A try of parked operations: they stay parked, and are tried again later.
    Parked "parked",
    /// The watch of a cluster, its probes and checks: started again, with nothing but the configuration.
    Watch "watch",
    /// The admin port: the request is answered with 500.
    Admin "admin",
    /// The threads of a log: its writer's ends the log, as a failed sync does, its keeper goes on.
    Log "log",
    /// The threads of Kafka's groups and topics.
    Kafka "kafka",
    /// A reload: the configuration that is in force stays so, as far as nothing of the new one was.
    Reload "reload",
    /// What keeps the house: pools, listeners, files. Started again, or done at the next turn.
    Housekeeping "housekeeping",
    /// What nobody watches over.
    Other "other",
}

/// A panic that was caught.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Panicked {
    /// What it said, cut short.
    pub message: String,
    /// File and line.
    pub place: String,
    /// Where it came from, if `RUST_BACKTRACE` asks for that.
    backtrace: Option<String>,
}

static COUNTS: [AtomicU64; Work::ALL.len()] = [const { AtomicU64::new(0) }; Work::ALL.len()];

thread_local! {
    static DOING: Cell<Option<Work>> = const { Cell::new(None) };
    /// What the hook has seen of the panic that unwinds.
    static LAST: RefCell<Option<Panicked>> = const { RefCell::new(None) };
}

/// A thread is at some work, until this is dropped.
pub(super) struct Doing(Option<Work>);

/// Panics so far, by kind of work.
pub fn panics() -> impl Iterator<Item = (Work, u64)> {
    let counts = Work::ALL.iter().zip(&COUNTS);
    counts.map(|(work, count)| (*work, count.load(Relaxed)))
}

/// Has panics counted, and told by the log and not by text on the standard error, from now on. Called once,
/// by the program that runs a gateway.
pub fn tell_of_panics() {
    std::panic::set_hook(Box::new(hook));
}

fn hook(info: &PanicHookInfo<'_>) {
    let doing = DOING.with(Cell::get);
    let work = doing.unwrap_or_else(Work::of_thread);
    let backtrace = Backtrace::capture();
    let panicked = Panicked {
        message: told(info.payload()),
        place: info.location().map(ToString::to_string).unwrap_or_default(),
        backtrace: (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string()),
    };
    COUNTS[work as usize].fetch_add(1, Relaxed);
    match doing {
        // Whoever catches it says what comes of it.
        Some(_) => drop(LAST.try_with(|last| last.borrow_mut().replace(panicked))),
        None => panicked.report(work, "what nobody watches over has ended"),
    }
}

/// What a panic says. Messages of indexing quote the text that they are about, which may be a document's:
/// that is left out.
fn told(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&'static str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("it says nothing");
    let quote = text.find(" of `").or_else(|| text.find('`'));
    let text = &text[..quote.unwrap_or(text.len())];
    let end = text.floor_char_boundary(MESSAGE_BYTES_MAX);
    text[..end].trim_end().to_owned()
}

// === impl Work ===

impl Work {
    /// Says that this thread is at it.
    pub(super) fn begin(self) -> Doing {
        Doing(DOING.with(|doing| doing.replace(Some(self))))
    }

    /// What a thread does on which no work was begun, by its name: of crates that know nothing of this one.
    fn of_thread() -> Self {
        let thread = std::thread::current();
        match thread.name().unwrap_or_default() {
            name if name.starts_with("log-") => Work::Log,
            name if name.starts_with("kafka-") => Work::Kafka,
            "admin" => Work::Admin,
            _ => Work::Other,
        }
    }
}

impl Drop for Doing {
    fn drop(&mut self) {
        DOING.with(|doing| doing.set(self.0));
    }
}

// === impl Panicked ===

impl Panicked {
    /// Of a panic that was caught just now on this thread.
    pub(super) fn take(payload: &(dyn Any + Send)) -> Self {
        let seen = LAST.try_with(|last| last.borrow_mut().take());
        seen.ok().flatten().unwrap_or_else(|| Panicked {
            message: told(payload),
            ..Panicked::default()
        })
    }

    /// Tells of it in the log, with what comes of it.
    pub fn report(&self, work: Work, comes_to: &str) {
        let (message, place, backtrace) = (&*self.message, &*self.place, self.backtrace.as_deref());
        let work = work.as_str();
        crate::rationed!(
            tracing::error,
            work,
            panic = message,
            place,
            backtrace,
            "the gateway has a bug: {comes_to}"
        );
    }
}

impl std::fmt::Display for Panicked {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} ({})", self.message, self.place)
    }
}

const MESSAGE_BYTES_MAX: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_panic_says_is_short_and_without_the_text_that_it_is_about() {
        let told = |text: &str| told(&text.to_owned());
        assert_eq!(told("planted"), "planted");
        assert_eq!(
            told("byte index 1 is not a char boundary; it is inside 'é' (bytes 0..2) of `élan {\"name\":1}`"),
            "byte index 1 is not a char boundary; it is inside 'é' (bytes 0..2)"
        );
        assert!(told(&"ä".repeat(900)).len() <= MESSAGE_BYTES_MAX);
        assert_eq!(super::told(&7_u32), "it says nothing");
    }
}

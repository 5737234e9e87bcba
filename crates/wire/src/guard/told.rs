//! Reports of panics: each is counted by the work in which it happened, and logged with its message and
//! place.

use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::{Cell, RefCell};
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! works {
    ($($(#[doc = $doc:literal])+ $name:ident $label:literal,)+) => {
        /// Kinds of work, each with the consequence of a panic in it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Work {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Work {
            /// All kinds.
            pub const ALL: &[Work] = &[$(Work::$name,)+];

            /// Returns the label of this kind in the metrics and the log.
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
    /// One request: it is answered with 500 if the answer has not begun; otherwise the connection is reset.
    Request "request",
    /// A connection between requests: it is closed.
    Connection "connection",
    /// The driver of all work of a core, or the acceptor of its connections: the gateway stops accepting and
    /// ends, with status 4.
    Core "core",
    /// The request that carries several clients' parts: each part is sent separately, as after a lost answer.
    Combined "combined",
    /// A batch of a lane: it is read again one record at a time. A record that panics again is halved, and an
    /// operation that panics alone becomes a dead letter.
    Lane "lane",
    /// The request that carries several lanes' parcels: each parcel is sent separately.
    Parcels "parcels",
    /// The rest of a delivery: it is started again as a whole, from what is committed.
    Delivery "delivery",
    /// A try of parked operations: they stay parked, and are tried again later.
    Parked "parked",
    /// The watch of a cluster, its probes and checks: it is started again, with nothing but the
    /// configuration.
    Watch "watch",
    /// The admin port: the request is answered with 500.
    Admin "admin",
    /// The threads of a log: a panic of the writer ends the log, as a failed sync does; the keeper continues.
    Log "log",
    /// The threads of Kafka's groups and topics.
    Kafka "kafka",
    /// A reload: the configuration in force stays, except for parts of the new one that already took effect.
    Reload "reload",
    /// The export of traces: it is started again, and the spans under way are lost.
    Traces "traces",
    /// Housekeeping of pools, listeners and files: it is started again, or done at the next turn.
    Housekeeping "housekeeping",
    /// Work that nothing watches over.
    Other "other",
}

/// A panic that was caught.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Panicked {
    /// The panic's message, cut short.
    pub message: String,
    /// The file and line of the panic.
    pub place: String,
    /// The backtrace, if `RUST_BACKTRACE` asks for one.
    backtrace: Option<String>,
}

static COUNTS: [AtomicU64; Work::ALL.len()] = [const { AtomicU64::new(0) }; Work::ALL.len()];

thread_local! {
    static DOING: Cell<Option<Work>> = const { Cell::new(None) };
    /// The hook's record of the panic that unwinds.
    static LAST: RefCell<Option<Panicked>> = const { RefCell::new(None) };
}

/// Marks the thread as doing some work, until dropped.
pub(super) struct WorkMark(Option<Work>);

/// Returns the panics so far, by kind of work.
pub fn panics() -> impl Iterator<Item = (Work, u64)> {
    let counts = Work::ALL.iter().zip(&COUNTS);
    counts.map(|(work, count)| (*work, count.load(Relaxed)))
}

/// Starts counting panics, and reporting them in the log instead of as text on the standard error. Called
/// once, by the program that runs a gateway.
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
        // The catcher reports the consequence.
        Some(_) => drop(LAST.try_with(|last| last.borrow_mut().replace(panicked))),
        None => panicked.report(work, "what nobody watches over has ended"),
    }
}

/// Returns a panic's message. Messages of indexing quote the text that they concern, which may be a
/// document's: the quote is left out.
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
    /// Marks this thread as doing this work.
    pub(super) fn begin(self) -> WorkMark {
        WorkMark(DOING.with(|doing| doing.replace(Some(self))))
    }

    /// Returns the work of a thread on which no work was begun, by its name: a thread of a crate that does
    /// not know this one.
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

impl Drop for WorkMark {
    fn drop(&mut self) {
        DOING.with(|doing| doing.set(self.0));
    }
}

// === impl Panicked ===

impl Panicked {
    /// Takes the record of a panic that was just caught on this thread.
    pub(super) fn take(payload: &(dyn Any + Send)) -> Self {
        let seen = LAST.try_with(|last| last.borrow_mut().take());
        seen.ok().flatten().unwrap_or_else(|| Panicked {
            message: told(payload),
            ..Panicked::default()
        })
    }

    /// Reports the panic in the log, with its consequence.
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

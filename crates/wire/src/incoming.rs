//! The body of a request, while it arrives.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::admission::{FIRST_BYTES, peer_of};
use crate::budget::OverBudget;
use crate::claim::{Claim, ClaimVerdict};
use crate::connection::Connection;
use crate::holder::Principal;
use crate::inflate::{Encoding, Inflater, STEP_BYTES};
use crate::outgoing::{Chunk, Outgoing, Source, SourceError};
use crate::place::Beginning;
use crate::pool::{Buffer, Pool};
use crate::receive::{Gathered, READ_BYTES, READ_BYTES_MIN};
use crate::refusal::Refusal;

/// The body of a request. Dropping it unread is fine.
#[derive(Debug)]
pub struct Incoming {
    connection: Rc<Connection>,
    pool: Pool,
    request: u64,
    length: Option<u64>,
    encoding: Encoding,
}

/// The two ends of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// The address of the client.
    pub address: SocketAddr,
    /// The address that the client connected to.
    pub local: SocketAddr,
    /// Whether the connection is TLS.
    pub tls: bool,
    /// The client's certificate (DER), when one was required and verified.
    pub certificate: Option<Arc<[u8]>>,
}

/// A body as it arrived, and decoded.
#[derive(Debug)]
pub struct Collected {
    /// The body as it came over the wire.
    pub original: Buffer,
    /// The decoded body, or why it can't be decoded; `None` if it isn't encoded.
    pub decoded: Option<Result<Buffer, BodyError>>,
}

/// The result of reading more of a body.
enum Step {
    Gathered(Gathered),
    /// Others need room.
    Told(ClaimVerdict),
}

/// Watches whether the client goes away while its request is being answered.
#[derive(Debug, Clone)]
pub struct Presence {
    connection: Rc<Connection>,
}

/// The reason why a body could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BodyError {
    /// The body breaks a rule of HTTP or a limit, or arrived too slowly: answer with this refusal.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// There is no room in memory now: answer 429 or 503.
    #[error(transparent)]
    OverBudget(#[from] OverBudget),
    /// The `Content-Encoding` is not supported.
    #[error("unsupported Content-Encoding")]
    UnsupportedEncoding,
    /// The compressed body is corrupt or cut off.
    #[error("corrupt {0} body")]
    Corrupt(&'static str),
    /// The body inflates past the limit.
    #[error("compressed body inflates to more than {limit} bytes")]
    Inflated {
        /// The limit that was passed, bytes.
        limit: u64,
    },
    /// The client went away before the end of its body.
    #[error("client closed the connection before the end of the request body")]
    Disconnected,
    /// The connection failed.
    #[error("connection failed while the request body was read: {0}")]
    Io(#[source] io::Error),
}

// === impl Incoming ===

impl Incoming {
    pub(crate) fn new(connection: Rc<Connection>, length: Option<u64>, encoding: Encoding) -> Self {
        connection.principal.set(Principal::Anybody);
        let (pool, request) = {
            let io = connection.io.borrow();
            (io.receiver.pool.clone(), io.request)
        };
        Incoming {
            connection,
            pool,
            request,
            length,
            encoding,
        }
    }

    /// Notes who sends the body; each user of all requests has a number for itself. The memory of the body
    /// counts for that sender's share, too. To be called before the body is read.
    pub fn sent_by(&mut self, principal: Principal) {
        self.connection.principal.set(principal);
    }

    /// Returns whether the body is so large, or may be, that it is given memory of its own.
    pub fn may_be_large(&self) -> bool {
        self.length.is_none_or(|length| length >= FIRST_BYTES as u64)
    }

    /// Returns the next bytes as they come over the wire (at most 256 KiB, any content encoding untouched);
    /// `None` at the end.
    ///
    /// # Errors
    /// See [`BodyError`].
    pub async fn chunk(&mut self) -> Result<Option<Chunk>, BodyError> {
        Ok(poll_fn(|cx| self.poll_piece(cx)).await?.map(Chunk::Buffer))
    }

    /// Returns the whole body in one contiguous buffer, `gzip` and `deflate` decoded (see
    /// [`Incoming::collect_raw`]). `limit` bounds the decoded size in bytes, and so does
    /// [`Limits::body_bytes_max`](crate::Limits::body_bytes_max), here and in the other methods.
    ///
    /// # Errors
    /// [`BodyError::Refused`] with 413, or [`BodyError::Inflated`] over the limit; see [`BodyError`] for the
    /// others.
    pub async fn collect(self, limit: usize) -> Result<Buffer, BodyError> {
        match self.encoding {
            Encoding::Identity => self.collect_raw(limit).await,
            _ => self.collect_inflated(limit).await,
        }
    }

    /// Returns the whole body as it arrived, not decoded, at most `limit` bytes. With a declared length the
    /// memory is taken once, when the first bytes have come; without one, it grows. Both wait a bounded time
    /// for room. A body that arrives slowly while others wait for room is cut off, or continues with no more
    /// memory than the bytes that have arrived.
    ///
    /// # Errors
    /// See [`BodyError`].
    pub async fn collect_raw(self, limit: usize) -> Result<Buffer, BodyError> {
        let limit = self.limited(limit);
        if self.length.is_some_and(|length| length > limit as u64) {
            return Err(BodyError::Refused(Refusal::BodyTooLarge));
        }
        let mut into = self.pool.take(0);
        let mut promised = true;
        let budget = self.pool.budget();
        let peer = peer_of(self.connection.peer.address.ip());
        let mut begins = Some(Beginning::new(budget, peer));
        loop {
            match self.gather(&mut into, &mut begins, limit).await? {
                Step::Gathered(Gathered::All) => break,
                Step::Gathered(Gathered::NoRoom) => {
                    begins = None;
                    self.make_room(&mut into, promised, limit).await?;
                }
                Step::Told(ClaimVerdict::Shrink) => {
                    into.shrink(READ_BYTES_MIN);
                    promised = false;
                }
                Step::Told(verdict) => return Err(self.cut(verdict, &into)),
            }
        }
        match into.claim() {
            Some(claim) => claim.has_arrived(),
            None if into.len() >= FIRST_BYTES => into.claimed(self.connection.claim()),
            None => {}
        }
        Ok(into)
    }

    /// Returns a limit that is not above the server's. A declared length was compared with that one before; a
    /// chunked body has none, and a packed one may become larger.
    fn limited(&self, limit: usize) -> usize {
        let most = self.connection.limits().body_bytes_max;
        limit.min(usize::try_from(most).unwrap_or(usize::MAX))
    }

    /// Appends the arriving bytes to `into`, until the body is complete, room is needed, or others need room.
    async fn gather(
        &self,
        into: &mut Buffer,
        begins: &mut Option<Beginning<'_>>,
        limit: usize,
    ) -> Result<Step, BodyError> {
        let limits = self.connection.limits();
        poll_fn(|cx| {
            let mut io = self.connection.io.borrow_mut();
            if io.request != self.request {
                return Poll::Ready(Err(BodyError::Disconnected));
            }
            let polled = io.poll_body(&limits, cx, |receiver, stream, cx| {
                receiver.poll_gather(stream, cx, into, limit)
            });
            let Some(claim) = into.claim() else {
                if polled.is_pending()
                    && let Some(begins) = begins
                {
                    begins.stops(io.receiver.held())?;
                }
                return polled.map_ok(Step::Gathered);
            };
            claim.arrived(into.len());
            match polled {
                Poll::Pending => claim.poll_verdict(cx).map(|verdict| Ok(Step::Told(verdict))),
                polled => polled.map_ok(Step::Gathered),
            }
        })
        .await
    }

    /// Makes room for more of the body: for all of it, if its length is known and it is not known to arrive
    /// slowly.
    async fn make_room(&self, into: &mut Buffer, promised: bool, limit: usize) -> Result<(), BodyError> {
        let wait = self.connection.limits().budget_wait;
        let bytes = match self.length {
            Some(length) if promised => length as usize,
            Some(length) => (into.len() * 2).max(into.len() + READ_BYTES).min(length as usize),
            None => (into.len() * 2).max(READ_BYTES),
        };
        let Some(claim) = into.claim() else {
            let claim = self.connection.claim();
            self.sets_aside(&claim);
            let larger = self.pool.admit(bytes, &claim, wait).await?;
            claim.arrives();
            into.move_to(larger, Some(claim));
            return Ok(());
        };
        self.sets_aside(claim);
        let told = poll_fn(|cx| claim.poll_verdict(cx));
        let most = self.pool.budget().admission_limit();
        if into.charged() + bytes > most || !promised && into.is_large() {
            // There is no room for both the old memory and the new, or it is scarce. One byte more than
            // allowed distinguishes a body of exactly the limit from a larger one.
            let size = bytes.min(limit.saturating_add(1)).min(most);
            let more = size.saturating_sub(into.charged());
            if more == 0 {
                return Err(BodyError::OverBudget(OverBudget {
                    wanted: bytes,
                    used: self.pool.budget().used(),
                    limit: most,
                }));
            }
            tokio::select! {
                biased;
                admitted = self.pool.admit_more(more, claim, wait) => admitted?,
                verdict = told => match verdict {
                    ClaimVerdict::Shrink => return Ok(()),
                    verdict => return Err(self.cut(verdict, into)),
                },
            }
            into.grow(more);
            return Ok(());
        }
        let larger = tokio::select! {
            biased;
            larger = self.pool.admit(bytes, claim, wait) => larger?,
            verdict = told => match verdict {
                ClaimVerdict::Shrink => return Ok(()), // it holds the bytes that have arrived and little more
                verdict => return Err(self.cut(verdict, into)),
            },
        };
        into.move_to(larger, None);
        Ok(())
    }

    /// Notes how much memory the bytes that were read with the head take while the body waits for room:
    /// little more than they are, where memory is scarce.
    fn sets_aside(&self, claim: &Claim) {
        let mut io = self.connection.io.borrow_mut();
        claim.record().set_aside(io.receiver.waits());
    }

    fn cut(&self, verdict: ClaimVerdict, into: &Buffer) -> BodyError {
        self.connection.io.borrow_mut().broken = true;
        match verdict {
            ClaimVerdict::OverShare => BodyError::OverBudget(OverBudget {
                wanted: into.capacity(),
                used: self.pool.budget().used(),
                limit: self.pool.budget().peer_share(),
            }),
            _ => BodyError::Refused(Refusal::BodyHolds),
        }
    }

    /// Returns the whole body as it arrived and, if it is encoded, the decoded body: for callers that may
    /// have to pass the original on. Both sizes are bounded by `limit`.
    ///
    /// # Errors
    /// When the body as it arrived could not be read; see [`BodyError`].
    pub async fn collect_with_original(self, limit: usize) -> Result<Collected, BodyError> {
        let limit = self.limited(limit);
        if self.encoding == Encoding::Identity {
            let original = self.collect_raw(limit).await?;
            return Ok(Collected {
                original,
                decoded: None,
            });
        }
        let (encoding, pool, wait, claim) = (
            self.encoding,
            self.pool.clone(),
            self.connection.limits().budget_wait,
            self.connection.claim(),
        );
        let original = self.collect_raw(limit).await?;
        let decoded = Some(inflate_whole(encoding, &original, limit, &pool, (claim, wait)).await);
        Ok(Collected { original, decoded })
    }

    async fn collect_inflated(mut self, limit: usize) -> Result<Buffer, BodyError> {
        let limit = self.limited(limit);
        let mut inflater = Inflater::new(self.encoding, limit)?;
        let guess = inflated_guess(self.length.map(|length| length as usize), limit);
        let claim = self.connection.claim();
        let wait = self.connection.limits().budget_wait;
        self.sets_aside(&claim);
        let mut into = self.pool.take(0);
        let larger = self.pool.admit(guess, &claim, wait).await?;
        into.move_to(larger, Some(claim));
        while let Some(piece) = poll_fn(|cx| self.poll_piece(cx)).await? {
            inflate_piece(&mut inflater, &piece, &mut into).await?;
        }
        inflater.finish()?;
        Ok(into)
    }

    /// Turns the body into one to send on, unchanged; its length is [`Incoming::length`].
    pub fn forward(self) -> Outgoing {
        match self.length {
            Some(0) => Outgoing::Empty,
            length => Outgoing::stream(self, length),
        }
    }

    /// Returns the declared length; `None` when chunked.
    pub fn length(&self) -> Option<u64> {
        self.length
    }

    /// Returns whether the request has no body at all.
    pub fn is_empty(&self) -> bool {
        self.length == Some(0)
    }

    /// Returns the pool of the core that this runs on.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Returns the client that sent the body.
    pub fn peer(&self) -> &Peer {
        &self.connection.peer
    }

    /// Returns a handle that watches whether the client goes away.
    pub fn presence(&self) -> Presence {
        Presence {
            connection: Rc::clone(&self.connection),
        }
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Buffer>, BodyError>> {
        let mut io = self.connection.io.borrow_mut();
        if io.request != self.request {
            return Poll::Ready(Err(BodyError::Disconnected));
        }
        let limits = &self.connection.limits();
        let piece = ready!(io.poll_body(limits, cx, |receiver, stream, cx| receiver.poll_piece(stream, cx)))?;
        if io.receiver.received > limits.body_bytes_max {
            io.broken = true;
            return Poll::Ready(Err(BodyError::Refused(Refusal::BodyTooLarge)));
        }
        Poll::Ready(Ok(piece))
    }
}

impl Source for Incoming {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Chunk, SourceError>>> {
        let piece = ready!(self.poll_piece(cx));
        Poll::Ready(
            piece
                .map(|piece| piece.map(Chunk::Buffer))
                .map_err(SourceError::from)
                .transpose(),
        )
    }
}

// === impl Presence ===

impl Presence {
    /// Resolves when the client has closed or reset its connection (a half-closed client counts as gone, as
    /// in Elasticsearch). It watches only once the request's body has been read. Select on it to give up work
    /// whose answer nobody will read.
    pub async fn gone(&self) {
        poll_fn(|cx| self.connection.gone.poll(cx)).await
    }

    /// Returns whether the client is known to have gone.
    pub fn is_gone(&self) -> bool {
        self.connection.gone.is_set()
    }
}

// === impl BodyError ===

impl BodyError {
    /// Returns the refusal to answer with; `None` when nobody is there to read it, and for `OverBudget`,
    /// `UnsupportedEncoding` and `Corrupt`.
    pub fn refusal(&self) -> Option<Refusal> {
        match self {
            BodyError::Refused(refusal) => Some(*refusal),
            BodyError::Inflated { .. } => Some(Refusal::BodyTooLarge),
            _ => None,
        }
    }
}

async fn inflate_whole(
    encoding: Encoding,
    original: &[u8],
    limit: usize,
    pool: &Pool,
    (claim, wait): (Claim, Duration),
) -> Result<Buffer, BodyError> {
    let mut inflater = Inflater::new(encoding, limit)?;
    let mut into = pool.take(0);
    let larger = pool
        .admit(inflated_guess(Some(original.len()), limit), &claim, wait)
        .await?;
    into.move_to(larger, Some(claim));
    inflate_piece(&mut inflater, original, &mut into).await?;
    inflater.finish()?;
    Ok(into)
}

/// Decodes all of `piece`, yielding now and then.
async fn inflate_piece(inflater: &mut Inflater, piece: &[u8], into: &mut Buffer) -> Result<(), BodyError> {
    let (mut at, mut since_yield) = (0, 0);
    loop {
        let before = into.len();
        let used = inflater.step(&piece[at..], into)?;
        at += used;
        since_yield += inflater.work(used, into.len() - before);
        if since_yield >= STEP_BYTES {
            since_yield = 0;
            tokio::task::yield_now().await;
        }
        if at == piece.len() && !inflater.has_more(into, before) {
            return Ok(());
        }
    }
}

fn inflated_guess(encoded: Option<usize>, limit: usize) -> usize {
    let guess = encoded.map_or(STEP_BYTES, |length| length.saturating_mul(RATIO_TYPICAL));
    guess.clamp(1, limit.max(1)).min(GUESS_BYTES_MAX)
}

/// The first guess of the inflated size, so that most bodies never grow.
const RATIO_TYPICAL: usize = 6;
const GUESS_BYTES_MAX: usize = 8 << 20;

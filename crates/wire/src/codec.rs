//! HTTP/1.1 framing without I/O: bytes in, heads and body pieces out (and back).
//!
//! Ambiguity about where one message ends and the next begins makes request smuggling possible, so everything
//! ambiguous is refused (RFC 9112, sections 2.2, 5, 6, 7 and 11.2), on both sides: in requests of clients and
//! in replies of nodes.

mod chunked;
mod encode;
mod framing;
mod reply;
mod request;
mod scan;
mod slots;

pub use chunked::{ChunkDecoder, ChunkFault, ChunkStep};
pub(crate) use encode::{encode_reply_head, encode_request_head};
pub use framing::{Framing, FramingFault};
pub use reply::{ReplyFault, ReplyHead, parse_reply};
pub use request::{RequestLine, parse_request};
pub use scan::{HeadFault, HeadScan};

pub(crate) use chunked::is_token;
pub(crate) use framing::strip_hop_by_hop;

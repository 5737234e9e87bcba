//! Answers to calls, on their way to the browser. A long one is put into JSON piece by piece as the browser
//! takes it, so that it is in memory once, and for a bounded time.

use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use futures_util::stream::unfold;
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;
use tokio::time::sleep;
use wire::guard::{Work, spawn};

use super::Refusal;
use crate::outbound::{Answer, AnswerRoom};
use crate::serve::Seat;

/// The body of an answer that is being sent.
struct Sending {
    text: Vec<u8>,
    /// How much of the text has gone out; none before the head.
    sent: Option<usize>,
    /// What comes before the text.
    head: String,
    #[expect(dead_code, reason = "the memory is free once this is dropped")]
    room: Option<AnswerRoom>,
    #[expect(dead_code, reason = "its drop says that the answer is gone")]
    ends: Option<oneshot::Sender<()>>,
}

/// Returns a cluster's or a gateway's answer as the page gets it. The seat is that of the browser's
/// connection, which a browser that takes too long loses.
pub(super) fn told(
    answer: Answer,
    took_ms: u64,
    headers: Value,
    seat: Option<Seat>,
) -> Result<Response, Refusal> {
    let mut head = Map::new();
    head.insert("status".to_owned(), json!(answer.status.as_u16()));
    head.insert("took_ms".to_owned(), json!(took_ms));
    head.insert("headers".to_owned(), headers);
    head.insert("truncated".to_owned(), json!(answer.truncated));
    if !answer.room.as_ref().is_some_and(AnswerRoom::is_shared) {
        head.insert("body".to_owned(), String::from_utf8_lossy(&answer.body).into());
        return Ok(Json(head).into_response());
    }
    let mut head = Value::Object(head).to_string();
    head.pop();
    head.push_str(",\"body\":\"");
    let sending = Sending {
        text: answer.body,
        sent: None,
        head,
        room: answer.room,
        ends: seat.map(watched),
    };
    let pieces = unfold(Some(sending), async |sending| {
        let (piece, left) = sending?.next();
        Some((piece, left))
    });
    let json = [(CONTENT_TYPE, "application/json")];
    Ok((json, Body::from_stream(pieces)).into_response())
}

/// Takes the connection's seat unless what is returned is dropped in time.
fn watched(seat: Seat) -> oneshot::Sender<()> {
    let (ends, ended) = oneshot::channel();
    spawn(Work::Admin, async move {
        tokio::select! {
            _ = ended => {}
            () = sleep(TAKEN_WITHIN) => seat.take_away(),
        }
    });
    ends
}

impl Sending {
    /// Returns the next piece of the body, and what is left after it.
    fn next(mut self) -> (Result<Bytes, serde_json::Error>, Option<Self>) {
        let Some(from) = self.sent else {
            self.sent = Some(0);
            return (Ok(std::mem::take(&mut self.head).into()), Some(self));
        };
        if from == self.text.len() {
            return (Ok(Bytes::from_static(b"\"}")), None);
        }
        let to = end_of_piece(&self.text, from);
        self.sent = Some(to);
        let piece = serde_json::to_string(&*String::from_utf8_lossy(&self.text[from..to]));
        // Without its quotation marks: the whole text has them.
        let bare = |piece: Bytes| piece.slice(1..piece.len() - 1);
        let piece = piece.map(|piece| bare(piece.into()));
        (piece, Some(self))
    }
}

/// Returns where a piece ends that begins at `from`: not within a character.
fn end_of_piece(text: &[u8], from: usize) -> usize {
    let whole = (from + PIECE_BYTES).min(text.len());
    let is_within = |at: &usize| {
        text.get(*at)
            .is_some_and(|byte| byte & 0b1100_0000 == 0b1000_0000)
    };
    // A character has three bytes at most after its first one; what has more is no text.
    (whole.saturating_sub(3).max(from + 1)..=whole)
        .rev()
        .find(|at| !is_within(at))
        .unwrap_or(whole)
}

/// Time limit for a browser to take an answer that others wait for the memory of.
const TAKEN_WITHIN: Duration = Duration::from_secs(10 * 60);
const PIECE_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use axum::body::to_bytes;
    use tokio::task::LocalSet;
    use tokio::time::{Instant, timeout};

    use super::*;
    use crate::api::testing::{on_shared, send};
    use crate::outbound::{ANSWERS_BYTES_MAX, AskError, NoRoom};
    use crate::store::ClusterEntry;

    /// Starts a cluster that answers each request with this text, and says its length if the path is `/told`.
    fn answering(text: Vec<u8>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, mut head) = (stream.unwrap(), [0; 4096]);
                let read = stream.read(&mut head).unwrap_or(0);
                let length = match head[..read].starts_with(b"GET /told") {
                    true => format!("content-length: {}\r\n", text.len()),
                    false => String::new(),
                };
                let head = format!("HTTP/1.1 200 OK\r\n{length}connection: close\r\n\r\n");
                // The client may be gone.
                let _ = stream
                    .write_all(head.as_bytes())
                    .and_then(|()| stream.write_all(&text));
            }
        });
        url
    }

    #[test]
    fn a_long_answer_comes_whole_and_takes_memory_until_it_has_gone_out() {
        // Pieces end within some of these characters, and one of the bytes is no text.
        let mut text = "a\"\u{1}\n\u{e9}\u{20ac}\u{1f600}".repeat(20_000).into_bytes();
        text[70_000] = 0xff;
        let (expected, length) = (String::from_utf8_lossy(&text).into_owned(), text.len());
        let url = answering(text);
        on_shared(None, async |api, routes| {
            let entry = ClusterEntry {
                id: "a".into(),
                name: "a".into(),
                endpoints: vec![url],
                ..ClusterEntry::default()
            };
            api.polls.store.keep_cluster(&entry, None).unwrap();
            let token = api.polls.store.begin_session(1).unwrap();
            for (path, most) in [("/told", length), ("/untold", 2 * length)] {
                let call = json!({"method": "GET", "path": path}).to_string();
                let answer = send(&routes, "POST", "/clusters/a/call", Some(&token), call).await;
                assert_eq!(answer.status(), 200);
                assert_eq!(answer.headers()["content-type"], "application/json");
                let taken = ANSWERS_BYTES_MAX - api.answers.free();
                assert!((length..=most).contains(&taken), "{path}: {taken} of {length}");
                let body = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
                let told: Value = serde_json::from_slice(&body).unwrap();
                assert!(told["body"] == *expected, "{path}: the text is another one");
                assert_eq!(
                    (&told["status"], &told["truncated"]),
                    (&json!(200), &json!(false))
                );
                assert_eq!(api.answers.free(), ANSWERS_BYTES_MAX);
            }
        });
    }

    #[test]
    fn a_piece_ends_between_characters_and_text_that_is_none_has_pieces_too() {
        let text = "\u{1f600}".repeat(PIECE_BYTES).into_bytes();
        for from in 0..8 {
            let to = end_of_piece(&text, from);
            assert!(
                to.is_multiple_of(4) && to > from + PIECE_BYTES - 4,
                "{from}: {to}"
            );
        }
        let none = vec![0x80; PIECE_BYTES + 2];
        assert_eq!(end_of_piece(&none, 0), PIECE_BYTES);
        assert_eq!(end_of_piece(&none, PIECE_BYTES), PIECE_BYTES + 2);
        assert_eq!(end_of_piece(b"a", 0), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_browser_that_takes_too_long_loses_its_connection_and_one_that_is_done_does_not() {
        let test = async {
            let seat = Seat::of_nobody();
            drop(watched(seat.clone()));
            assert!(timeout(2 * TAKEN_WITHIN, seat.gone()).await.is_err());
            let began = Instant::now();
            let _ends = watched(seat.clone());
            seat.gone().await;
            assert_eq!(began.elapsed(), TAKEN_WITHIN);
        };
        LocalSet::new().run_until(test).await;
    }

    #[test]
    fn an_answer_without_room_is_a_refusal_and_not_a_silent_cluster() {
        let refused = Refusal::from(AskError::from(NoRoom)).into_response();
        assert_eq!(refused.status(), 503);
    }
}

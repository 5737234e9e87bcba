//! Sends the messages of the outbox to the webhook's receiver, one after the other, each until it is taken.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, Uri};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::Alerts;
use super::message::test_message;
use crate::clock::now_ms;
use crate::outbound::{Ask, Outbound};
use crate::poll::Polls;
use crate::store::{Message, StoreError, Webhook};
use crate::target::{BadTarget, Target};

/// A URL that is no webhook's.
#[derive(Debug, thiserror::Error)]
#[error("url: {0}")]
pub(crate) struct BadUrl(&'static str);

/// Why a webhook cannot be asked at all.
#[derive(Debug, thiserror::Error)]
enum BadWebhook {
    #[error(transparent)]
    Url(#[from] BadUrl),
    #[error(transparent)]
    Target(#[from] BadTarget),
}

/// The outcome of a message's sending.
#[derive(Debug)]
enum SendOutcome {
    Taken,
    /// The receiver has read the message and does not want it: sending it again would not help.
    Refused(String),
    Failed(String),
}

/// Delivers until the future is dropped.
pub(crate) async fn deliver(polls: Polls, alerts: Arc<Alerts>) {
    loop {
        match polls.store.first_message() {
            Ok(Some((message, webhook))) => {
                let outcome = send(&polls.outbound, &webhook, message.body.clone()).await;
                let pause = match note(&polls, &alerts, &message, outcome) {
                    Ok(pause) => pause,
                    Err(error) => {
                        tracing::error!(%error, "the outbox cannot be written");
                        PAUSE_MAX
                    }
                };
                rest(&alerts, pause).await;
            }
            Ok(None) => alerts.news.notified().await,
            Err(error) => {
                tracing::error!(%error, "the outbox cannot be read");
                sleep(PAUSE_MAX).await;
            }
        }
    }
}

/// Waits before the next message. A changed webhook is tried at once; further messages do not end the pause.
async fn rest(alerts: &Alerts, pause: Duration) {
    if pause.is_zero() {
        return;
    }
    let until = tokio::time::Instant::now() + pause;
    loop {
        tokio::select! {
            () = tokio::time::sleep_until(until) => return,
            () = alerts.news.notified() => {}
        }
        if alerts.delivery.lock().failures == 0 {
            return;
        }
    }
}

/// Notes the outcome; returns how long to wait.
fn note(
    polls: &Polls,
    alerts: &Alerts,
    message: &Message,
    outcome: SendOutcome,
) -> Result<Duration, StoreError> {
    let mut delivery = alerts.delivery.lock();
    match outcome {
        SendOutcome::Taken => {
            delivery.taken_ms = Some(now_ms());
            delivery.failures = 0;
        }
        SendOutcome::Refused(words) => {
            tracing::warn!(
                words,
                "the webhook's receiver refuses a message, which is given up"
            );
            delivery.failed = Some((now_ms(), words));
            delivery.dropped += 1;
            delivery.failures = 0;
        }
        SendOutcome::Failed(words) => {
            if delivery.failures == 0 {
                tracing::warn!(words, "the webhook's receiver does not take a message");
            }
            delivery.failed = Some((now_ms(), words));
            delivery.failures = delivery.failures.saturating_add(1);
            if now_ms() - message.at_ms < KEPT_MS {
                return Ok(pause(delivery.failures));
            }
            delivery.dropped += 1;
        }
    }
    polls.store.forget_message(message.id)?;
    Ok(Duration::ZERO)
}

/// The pause after a number of failures in a row: each doubles it.
fn pause(failures: u32) -> Duration {
    PAUSE_MIN
        .saturating_mul(1 << failures.saturating_sub(1).min(16))
        .min(PAUSE_MAX)
}

async fn send(outbound: &Outbound, webhook: &Webhook, body: String) -> SendOutcome {
    let (target, path) = match target_of(webhook) {
        Ok(target) => target,
        Err(error) => return SendOutcome::Failed(error.to_string()),
    };
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let ask = Ask {
        method: Method::POST,
        path,
        headers,
        body: body.into_bytes(),
        within: WITHIN,
        bytes_max: ANSWER_BYTES_MAX,
        memory: None,
    };
    match outbound.send(&Arc::new(target), ask).await {
        Ok(answer) if answer.status.is_success() => SendOutcome::Taken,
        Ok(answer) => {
            let words = format!("it answers {}", answer.status);
            match answer.status.as_u16() {
                400 | 413 | 422 => SendOutcome::Refused(words),
                _ => SendOutcome::Failed(words),
            }
        }
        Err(error) => SendOutcome::Failed(error.to_string()),
    }
}

/// Sends a message that says who tries the webhook, and returns how it went.
pub(crate) async fn test(outbound: &Outbound, webhook: &Webhook, user: &str) -> Value {
    let began = Instant::now();
    let outcome = send(outbound, webhook, test_message(user, now_ms()).to_string()).await;
    let (ok, words) = match outcome {
        SendOutcome::Taken => (true, None),
        SendOutcome::Refused(words) | SendOutcome::Failed(words) => (false, Some(words)),
    };
    json!({"ok": ok, "words": words, "took_ms": began.elapsed().as_secs_f64() * 1e3})
}

/// Returns the receiver's place as it may be shown: a webhook's path is often its password.
pub(crate) fn place_of(url: &str) -> Result<String, BadUrl> {
    Ok(split(url)?.0)
}

/// Returns scheme, host and port, and the path with its query.
fn split(url: &str) -> Result<(String, String), BadUrl> {
    let uri: Uri = url.parse().map_err(|_| BadUrl("this is no URL"))?;
    let port = match uri.scheme_str() {
        Some("https") => 443,
        Some("http") => 80,
        _ => return Err(BadUrl("it begins with `https://` or `http://`")),
    };
    let authority = uri.authority().ok_or(BadUrl("it has no host"))?;
    if authority.as_str().contains('@') {
        return Err(BadUrl("a name and a password do not belong into it"));
    }
    if authority.host().is_empty() {
        return Err(BadUrl("it has no host"));
    }
    if authority.port_u16().is_none() && authority.as_str() != authority.host() {
        return Err(BadUrl("its port is no port"));
    }
    let (scheme, port) = (
        uri.scheme_str().unwrap_or_default(),
        uri.port_u16().unwrap_or(port),
    );
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    Ok((format!("{scheme}://{}:{port}", authority.host()), path.to_owned()))
}

fn target_of(webhook: &Webhook) -> Result<(Target, String), BadWebhook> {
    let (place, path) = split(webhook.url.expose())?;
    let secret = webhook.secret.as_ref();
    let target = Target::receiver(place, secret, webhook.ca_pem.as_deref(), webhook.verify)?;
    Ok((target, path))
}

const WITHIN: Duration = Duration::from_secs(10);
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(5 * 60);
/// How long a message is kept that the receiver does not take.
const KEPT_MS: i64 = 24 * 60 * 60 * 1000;
const ANSWER_BYTES_MAX: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_split_and_only_its_place_is_shown() {
        let split = |url: &str| split(url).map_err(|error| error.to_string());
        assert_eq!(
            split("https://hooks.example/services/T0/hunter2?x=1"),
            Ok((
                "https://hooks.example:443".to_owned(),
                "/services/T0/hunter2?x=1".to_owned()
            ))
        );
        assert_eq!(
            split("http://[::1]:8080"),
            Ok(("http://[::1]:8080".to_owned(), "/".to_owned()))
        );
        let bad = [
            "",
            "hooks.example/x",
            "ftp://a/",
            "https://u:p@a/",
            "https:///x",
            "https://a:84430/",
            "https://a:/",
        ];
        for url in bad {
            assert!(split(url).is_err(), "{url}");
        }
    }

    #[test]
    fn pauses_double_up_to_five_minutes() {
        let pauses = [1, 2, 3, 9, 10, 99].map(|failures| pause(failures).as_secs());
        assert_eq!(pauses, [1, 2, 4, 256, 300, 300]);
    }
}

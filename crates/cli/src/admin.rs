//! The admin port of a running gateway, as commands use it.

mod trust;

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use config::Secret;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::exit;
use crate::output::{is_broken_pipe, why};
use trust::TrustArguments;

/// Which gateway, and how its answers are shown.
#[derive(clap::Args)]
pub(crate) struct AdminArguments {
    /// URL of the gateway's admin port
    #[arg(
        long,
        global = true,
        help_heading = "Gateway",
        value_name = "URL",
        env = "TIDEGATE_ADMIN",
        default_value = "http://127.0.0.1:2900"
    )]
    admin: String,
    /// File with the admin token; or set TIDEGATE_ADMIN_TOKEN
    #[arg(long, global = true, help_heading = "Gateway", value_name = "FILE")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    trust: TrustArguments,
    /// Print the answer as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// Talks to one admin port.
pub(crate) struct Admin {
    origin: String,
    token: Option<Secret>,
    agent: ureq::Agent,
}

/// A refusal by the admin port, in the admin port's words.
#[derive(Debug)]
pub(crate) struct Refused {
    status: u16,
    reason: String,
}

/// The parameters of a query.
pub(crate) type Terms = Vec<(&'static str, String)>;

// === impl AdminArguments ===

impl AdminArguments {
    pub(crate) fn client(&self) -> Result<Admin> {
        let variable = std::env::var("TIDEGATE_ADMIN_TOKEN");
        let token = match &self.token_file {
            Some(file) => {
                let text = std::fs::read_to_string(file);
                Some(
                    text.with_context(|| format!("--token-file: {}", file.display()))?
                        .trim()
                        .to_owned(),
                )
            }
            None => variable.ok().filter(|token| !token.is_empty()),
        };
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .tls_config(self.trust.tls(&self.admin)?)
            .build()
            .new_agent();
        Ok(Admin {
            origin: self.admin.trim_end_matches('/').to_owned(),
            token: token.map(Secret::new),
            agent,
        })
    }
}

// === impl Admin ===

impl Admin {
    pub(crate) fn get(&self, path: &str, query: &Terms) -> Result<Value> {
        let request = self.agent.get(self.url(path)).query_pairs(pairs(query));
        self.answer(self.authorized(request).call())
    }

    /// Asks like [`Admin::get`]. The answer is the text that the gateway sent, in which documents are as they
    /// were written: a [`Value`] rounds long numbers, and has each field once.
    pub(crate) fn get_raw(&self, path: &str, query: &Terms) -> Result<Box<RawValue>> {
        let request = self.agent.get(self.url(path)).query_pairs(pairs(query));
        self.answer(self.authorized(request).call())
    }

    /// Asks like [`Admin::get`], with a limit for the whole answer.
    pub(crate) fn get_within(&self, path: &str, query: &Terms, within: Duration) -> Result<Value> {
        let request = self.agent.get(self.url(path)).query_pairs(pairs(query));
        let request = request.config().timeout_global(Some(within)).build();
        self.answer(self.authorized(request).call())
    }

    /// Asks one of the admin port's health questions. Returns whether all is well, and the answer's body.
    pub(crate) fn health(&self, path: &str) -> Result<(bool, Value)> {
        let request = self.agent.get(self.url(path)).config();
        let request = request.timeout_global(Some(HEALTH_TIMEOUT)).build();
        let answer = self.authorized(request).call();
        match answer {
            Ok(mut answer) if answer.status() == 503 => {
                let body = answer.body_mut().read_to_string().unwrap_or_default();
                let told: Value = serde_json::from_str(&body).unwrap_or_default();
                // Another 503, such as a proxy's, says nothing about the gateway.
                if !told["status"].is_string() {
                    return Err(refuse(503, format!("{} answered 503", self.origin)));
                }
                Ok((false, told))
            }
            answer => Ok((true, self.answer(answer)?)),
        }
    }

    pub(crate) fn post(&self, path: &str, query: &Terms) -> Result<Value> {
        let request = self.agent.post(self.url(path)).query_pairs(pairs(query));
        self.answer(self.authorized(request).send_empty())
    }

    pub(crate) fn post_json<T: DeserializeOwned>(&self, path: &str, query: &Terms, body: &str) -> Result<T> {
        let request = self.agent.post(self.url(path)).query_pairs(pairs(query));
        let request = request.header("content-type", "application/json");
        self.answer(self.authorized(request).send(body))
    }

    pub(crate) fn post_text(&self, path: &str, query: &Terms, text: &str) -> Result<Value> {
        let request = self.agent.post(self.url(path)).query_pairs(pairs(query));
        let request = request.header("content-type", "application/yaml");
        self.answer(self.authorized(request).send(text))
    }

    pub(crate) fn put<T: DeserializeOwned>(&self, path: &str, query: &Terms, body: &str) -> Result<T> {
        let request = self.agent.put(self.url(path)).query_pairs(pairs(query));
        let request = request.header("content-type", "application/json");
        self.answer(self.authorized(request).send(body))
    }

    pub(crate) fn delete(&self, path: &str, query: &Terms) -> Result<Value> {
        let request = self.agent.delete(self.url(path)).query_pairs(pairs(query));
        self.answer(self.authorized(request).call())
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.origin)
    }

    fn authorized<B>(&self, request: ureq::RequestBuilder<B>) -> ureq::RequestBuilder<B> {
        let request = match actor() {
            Some(actor) => request.header("x-actor", actor),
            None => request,
        };
        match &self.token {
            Some(token) => request.header("authorization", format!("Bearer {}", token.expose())),
            None => request,
        }
    }

    fn answer<T: DeserializeOwned>(
        &self,
        answer: Result<http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<T> {
        let mut answer = answer.map_err(|error| {
            anyhow::anyhow!("no gateway answers at {}: {}", self.origin, unreached(&error))
        })?;
        let body = answer
            .body_mut()
            .with_config()
            .limit(ANSWER_BYTES_MAX)
            .read_to_string();
        let body = body.with_context(|| format!("the answer of {} broke off", self.origin))?;
        let status = answer.status().as_u16();
        if answer.status().is_success()
            && let Ok(read) = serde_json::from_str(&body)
        {
            return Ok(read);
        }
        let json: Option<Value> = serde_json::from_str(&body).ok();
        match json {
            _ if status == 401 => {
                let reason =
                    "the admin port requires its token: set TIDEGATE_ADMIN_TOKEN, or give --token-file";
                Err(refuse(status, reason.to_owned()))
            }
            json => {
                let reason = json.as_ref().and_then(|json| json["error"]["reason"].as_str());
                let reason =
                    reason.map_or_else(|| format!("{} answered {status}", self.origin), str::to_owned);
                Err(Refused { status, reason }.into())
            }
        }
    }
}

/// Returns who runs the command, for the gateway's log.
fn actor() -> Option<String> {
    let name = std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).ok()?;
    let is_plain = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic());
    is_plain.then_some(name)
}

fn pairs(query: &Terms) -> impl Iterator<Item = (&str, &str)> {
    query.iter().map(|(name, value)| (*name, value.as_str()))
}

/// Returns an error for what a command itself refuses, with the status that the admin port would give.
pub(crate) fn refuse(status: u16, reason: String) -> anyhow::Error {
    Refused { status, reason }.into()
}

// === impl Refused ===

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Refused {}

/// Returns the status with which the admin port refused.
pub(crate) fn status_of(error: &anyhow::Error) -> Option<u16> {
    error.downcast_ref::<Refused>().map(|refused| refused.status)
}

/// Returns the exit status of a command: [`exit::NO`] for `Ok(false)` and for something that is not there,
/// [`exit::USAGE`] for a wrong request, [`exit::FAILED`] for any other error.
pub(crate) fn exit_code(done: Result<bool>) -> ExitCode {
    let error = match done {
        Ok(true) => return ExitCode::SUCCESS,
        Ok(false) => return ExitCode::from(exit::NO),
        Err(error) if is_broken_pipe(&error) => return ExitCode::SUCCESS,
        Err(error) => error,
    };
    let _ = writeln!(io::stderr(), "tidegate: {}", why(&error));
    match error.downcast_ref::<Refused>() {
        Some(Refused { status: 404, .. }) => ExitCode::from(exit::NO),
        Some(Refused {
            status: 400 | 405 | 409,
            ..
        }) => ExitCode::from(exit::USAGE),
        _ => ExitCode::from(exit::FAILED),
    }
}

/// Escapes a name for use as one segment of a path.
pub(crate) fn segment(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let written = name.bytes().map(|byte| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    });
    written.collect()
}

/// Asks on a terminal whether to go on, and says that nothing was done if the answer is no. Without a
/// terminal nobody can answer, so only `--yes` is accepted.
pub(crate) fn confirm(question: &str) -> Result<bool> {
    if !io::stdin().is_terminal() {
        let reason = format!("{question} There is no terminal to ask on: give --yes");
        return Err(refuse(400, reason));
    }
    write!(io::stderr(), "{question} [y/N] ")?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    let agreed = matches!(answer.trim(), "y" | "Y" | "yes");
    if !agreed {
        writeln!(io::stderr(), "nothing was done")?;
    }
    Ok(agreed)
}

/// Returns why the gateway could not be reached, in words.
fn unreached(error: &ureq::Error) -> String {
    match error {
        ureq::Error::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            "nothing listens there".to_owned()
        }
        ureq::Error::HostNotFound => "its name cannot be looked up".to_owned(),
        ureq::Error::Io(error) => trust::failure(error).unwrap_or_else(|| error.to_string()),
        other => other.to_string(),
    }
}

/// The longest wait for a health check's answer.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(5);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const ANSWER_BYTES_MAX: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    /// Returns what is told of the health of a server that answers once, with a 503 and this body.
    fn health(body: &'static str) -> Result<(bool, Value)> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let served = std::thread::spawn(move || -> io::Result<()> {
            let (mut stream, _) = listener.accept()?;
            let (mut request, mut buffer) = (Vec::new(), [0; 1024]);
            while !request.ends_with(b"\r\n\r\n") {
                let read = stream.read(&mut buffer)?;
                request.extend_from_slice(&buffer[..read]);
            }
            let head = "HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length";
            write!(stream, "{head}: {}\r\n\r\n{body}", body.len())
        });
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None);
        let admin = Admin {
            origin,
            token: None,
            agent: config.build().new_agent(),
        };
        let told = admin.health("/health/ready");
        served.join().unwrap().unwrap();
        told
    }

    #[test]
    fn only_a_gateway_s_own_503_says_how_the_gateway_is() {
        let (well, told) = health(r#"{"status":"not_ready","reasons":[]}"#).unwrap();
        assert_eq!((well, &told["status"]), (false, &"not_ready".into()));
        for strange in ["upstream is down", r#"{"error":{"reason":"later"},"status":503}"#] {
            let error = health(strange).unwrap_err();
            assert_eq!(status_of(&error), Some(503), "{strange}");
        }
    }
}

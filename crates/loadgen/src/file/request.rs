//! The section `requests`: the requests to send.

use std::time::Duration;

use http::Method;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use settings::problem::{Problems, nearest};
use settings::yaml::{Node, Value};

use super::account::{BasicAuth, basic_auth};
use super::condition;
use super::runner::Runner;
use super::section::{Section, list_of};
use super::text::Text;
use crate::condition::{Condition, Field};
use crate::request::{self, Body, Headers, Request, Server, Url};
use crate::slot::Slot;
use crate::template::{Template, TemplateError};
use crate::variable::Variable;

/// The largest number of repetitions of a body.
const REPEAT_MAX: u32 = 10_000_000;

/// The parts of the file that a request may refer to.
pub(super) struct FileParts<'f> {
    pub(super) runner: &'f Runner,
    pub(super) variables: &'f [Variable],
    /// The names under which requests anywhere in the file register fields of answers.
    pub(super) registered: &'f [String],
}

/// The names that a request's texts may use.
struct Scope<'v> {
    variables: &'v [Variable],
    registered: &'v [String],
    /// Runtime variables by name, each with the variable that it draws from.
    request: Vec<(String, u16)>,
    line: Vec<(String, u16)>,
}

/// Reads one item of `requests`.
pub(super) fn read(
    item_node: &Node,
    path: &str,
    file: &FileParts<'_>,
    problems: &mut Problems,
) -> Option<Request> {
    let (runner, variables) = (file.runner, file.variables);
    let mut item = Section::of(item_node, path, problems)?;
    let Some(inner) = item.get("request") else {
        item.missing("`request`");
        item.end();
        return None;
    };
    let path = item.path_of("request");
    let assertion = item.get("assert");
    let sleep = sleep(&mut item);
    // `register` was read before all requests; see `registered`.
    item.get("register");
    item.end();

    let mut section = Section::of(inner, &path, problems)?;
    let method = method(&mut section);
    let url = section.text("url");
    let account = basic_auth(&mut section, "basic_auth").or_else(|| runner.default_basic_auth.clone());
    let headers = section.get("headers");
    let body = section.text("body");
    let repeat = section.number("body_repeat_times", 1, REPEAT_MAX).unwrap_or(1);
    let times = section.number("execute_repeat_times", 1, u32::MAX).unwrap_or(1);
    let scope = Scope {
        variables,
        registered: file.registered,
        request: runtime_variables(&mut section, "runtime_variables", variables),
        line: runtime_variables(&mut section, "runtime_body_line_variables", variables),
    };
    section.ignored("has_variable", "every text is looked into");
    if url.is_none() {
        section.missing("`url`");
    }
    section.end();

    let url = full_url(url?, runner);
    let name = format!("{method} {}", path_of_url(&url.text));
    let (url, url_account) = scope.url(&url, problems)?;
    let mut headers = scope.headers(headers, &format!("{path}.headers"), problems);
    scope.account(account.as_ref(), url_account, &mut headers, problems);
    let bulk = is_bulk(&url);
    let body = body.and_then(|body| scope.body(body, repeat, bulk, problems));
    add_own_headers(&mut headers, body.is_some(), bulk);
    let once: Box<[u16]> = scope.request.iter().map(|(_, from)| *from).collect();
    let needs = request::needs(variables, &texts_of(&headers, &url), &once, body.as_ref());
    let assertion = assertion.and_then(|node| scope.assertion(node, &path, problems));
    let register = registered(item_node, &item_path(&path, "register"), problems)
        .into_iter()
        .filter_map(|(name, field)| Some((scope.registered_at(&name)?, field)))
        .collect();
    Some(Request {
        name,
        method,
        headers,
        body,
        times,
        once,
        needs,
        url,
        assertion,
        register,
        sleep,
    })
}

/// Adds the headers that a request gets unless the file sets others.
fn add_own_headers(headers: &mut Headers, has_body: bool, bulk: bool) {
    if has_body && !headers.fixed.contains_key(CONTENT_TYPE) {
        let kind = ["application/json", "application/x-ndjson"][usize::from(bulk)];
        headers.fixed.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    }
    headers
        .fixed
        .entry(USER_AGENT)
        .or_insert(HeaderValue::from_static(AGENT));
}

/// Whether a request is a bulk, as far as its address says so.
fn is_bulk(url: &Url) -> bool {
    match url {
        Url::Fixed { target, .. } => {
            target.ends_with(b"/_bulk") || target.fixed().is_some_and(request::is_bulk)
        }
        Url::Moving(url) => url.ends_with(b"/_bulk"),
    }
}

/// Returns the texts of a request, except its body, that may use variables.
fn texts_of<'r>(headers: &'r Headers, url: &'r Url) -> Vec<&'r Template> {
    let mut texts: Vec<&Template> = headers.moving.iter().map(|(_, text)| text).collect();
    let account = headers.account.iter();
    texts.extend(account.flat_map(|(user, password)| [user, password]));
    texts.push(match url {
        Url::Fixed { target, .. } => target,
        Url::Moving(url) => url,
    });
    texts
}

/// Reads the names under which an item of `requests` registers fields of its answer:
/// `register: [{NAME: FIELD}]`.
pub(super) fn registered(item: &Node, path: &str, problems: &mut Problems) -> Vec<(String, Field)> {
    let Value::Map(entries) = &item.value else {
        return Vec::new();
    };
    let Some((_, node)) = entries.iter().find(|(key, _)| key.name == "register") else {
        return Vec::new();
    };
    let maps = match &node.value {
        Value::Map(_) => vec![node],
        _ => list_of(node, path, problems),
    };
    let mut out = Vec::new();
    for map in maps {
        let Value::Map(entries) = &map.value else {
            let message = format!("`NAME: FIELD` is expected, not {}", map.describe());
            problems.error(map.place, path, message, None);
            continue;
        };
        for (name, field) in entries {
            let parsed = match Text::of(field, path) {
                Some(field) => Field::parse(&field.text).map_err(|why| why.to_string()),
                None => Err(format!(
                    "the name of a field is expected, not {}",
                    field.describe()
                )),
            };
            match parsed {
                Ok(parsed) => out.push((name.name.clone(), parsed)),
                Err(why) => problems.error(field.place, path, why, None),
            }
        }
    }
    out
}

/// Reads `sleep: {sleep_in_milli_seconds: N}`.
fn sleep(item: &mut Section<'_, '_>) -> Option<Duration> {
    let node = item.get("sleep")?;
    let path = item.path_of("sleep");
    let mut section = Section::of(node, &path, item.problems)?;
    let ms = section.number("sleep_in_milli_seconds", 0, u64::from(u32::MAX));
    if ms.is_none() {
        section.missing("`sleep_in_milli_seconds`");
    }
    section.end();
    ms.map(Duration::from_millis)
}

fn item_path(request: &str, key: &str) -> String {
    format!("{}{key}", request.trim_end_matches("request"))
}

fn method(section: &mut Section<'_, '_>) -> Method {
    let Some(text) = section.text("method") else {
        return Method::GET;
    };
    match Method::from_bytes(text.text.to_ascii_uppercase().as_bytes()) {
        Ok(method) => method,
        Err(_) => {
            let message = format!("`{}` is not a method", text.text.escape_debug());
            section.problems.error(text.place, &text.path, message, None);
            Method::GET
        }
    }
}

/// Reads pairs of `name: variable`.
fn runtime_variables(
    section: &mut Section<'_, '_>,
    key: &'static str,
    variables: &[Variable],
) -> Vec<(String, u16)> {
    let Some(node) = section.get(key) else {
        return Vec::new();
    };
    let path = section.path_of(key);
    let Value::Map(entries) = &node.value else {
        let message = format!("a map of names is expected, not {}", node.describe());
        section.problems.error(node.place, &path, message, None);
        return Vec::new();
    };
    let mut out = Vec::new();
    for (name, value) in entries {
        let path = format!("{path}.{}", name.name);
        let Some(from) = Text::of(value, &path) else {
            let message = "the name of a variable is expected";
            section.problems.error(value.place, &path, message, None);
            continue;
        };
        match index_of(&from.text, variables) {
            Some(at) => out.push((name.name.clone(), at)),
            None => {
                let names = variables.iter().map(|variable| variable.name.as_str());
                let help = nearest(&from.text, names).map(|near| format!("did you mean `{near}`?"));
                let message = format!("there is no variable `{}`", from.text);
                section.problems.error(from.place, &path, message, help);
            }
        }
    }
    out
}

fn index_of(name: &str, variables: &[Variable]) -> Option<u16> {
    let at = variables.iter().position(|variable| variable.name == name)?;
    u16::try_from(at).ok()
}

fn full_url(mut url: Text, runner: &Runner) -> Text {
    if let Some(endpoint) = &runner.default_endpoint
        && url.text.starts_with('/')
    {
        url.text.insert_str(0, endpoint.text.trim_end_matches('/'));
    }
    url
}

/// Returns the name of a URL in the summary: without its server and its parameters.
fn path_of_url(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let path = rest.find('/').map_or("/", |at| &rest[at..]);
    path.split('?').next().unwrap_or(path)
}

/// Why a name in a text cannot be used, in words.
enum Unresolved {
    /// Nothing has this name.
    Unknown(String),
    /// The variable with this name is drawn for another part of the request.
    Elsewhere(String),
}

// === impl Scope ===

impl Scope<'_> {
    fn resolve(&self, name: &str, in_body: bool) -> Result<Slot, Unresolved> {
        let among = |list: &[(String, u16)]| list.iter().position(|(known, _)| known == name);
        if let Some(at) = among(&self.line) {
            return if in_body {
                Ok(Slot::Line(at as u16))
            } else {
                Err(Unresolved::Elsewhere(format!(
                    "`{name}` is drawn for each line of the body, and this is not the body"
                )))
            };
        }
        if let Some(at) = among(&self.request) {
            return Ok(Slot::Request(at as u16));
        }
        if let Some(at) = index_of(name, self.variables) {
            return Ok(Slot::Variable(at));
        }
        if let Some(at) = self.registered_at(name) {
            return Ok(Slot::Registered(at));
        }
        let runtime = self.line.iter().chain(&self.request).map(|(name, _)| name);
        let names = runtime.chain(self.registered).map(String::as_str);
        let names = names.chain(self.variables.iter().map(|variable| variable.name.as_str()));
        Err(Unresolved::Unknown(match nearest(name, names) {
            Some(near) => format!("there is no variable `{name}` (did you mean `{near}`?)"),
            None => format!("there is no variable `{name}`"),
        }))
    }

    /// Resolves a name in an assertion, where only the values that answers registered are known: the
    /// request's own draws are gone.
    fn resolve_registered(&self, name: &str) -> Result<Slot, TemplateError> {
        self.registered_at(name).map(Slot::Registered).ok_or_else(|| {
            let why = format!("no answer registers `{name}`, and assertions know nothing else");
            TemplateError::Name(why)
        })
    }

    fn registered_at(&self, name: &str) -> Option<u16> {
        let at = self.registered.iter().position(|known| known == name)?;
        u16::try_from(at).ok()
    }

    fn compile(&self, text: &Text, in_body: bool, problems: &mut Problems) -> Option<Template> {
        let mut unknown = Vec::new();
        let mut resolve = |name: &str| match self.resolve(name, in_body) {
            Ok(slot) => Ok(Some(slot)),
            // A document may contain anything, but a URL or an account with such a text leads nowhere.
            Err(Unresolved::Unknown(message)) if in_body => {
                unknown.push(message);
                Ok(None)
            }
            Err(Unresolved::Unknown(message) | Unresolved::Elsewhere(message)) => {
                Err(TemplateError::Name(message))
            }
        };
        let compiled = Template::compile(&text.text, &mut resolve);
        unknown.dedup();
        for message in unknown {
            let message = format!("{message}: it is sent as it is written");
            problems.warning(text.place, &text.path, message);
        }
        match compiled {
            Ok(template) => Some(template),
            Err(why) => {
                problems.error(text.place, &text.path, why.to_string(), None);
                None
            }
        }
    }

    /// Compiles the URL, and returns the account that it contained.
    fn url(&self, url: &Text, problems: &mut Problems) -> Option<(Url, Option<Text>)> {
        let whole = self.compile(url, false, problems)?;
        let server_end = url.text.split_once("://").map_or(0, |(scheme, rest)| {
            scheme.len() + 3 + rest.find(['/', '?', '#']).unwrap_or(rest.len())
        });
        if url.text[..server_end].contains("$[[") || url.text.starts_with("$[[") {
            return Some((Url::Moving(whole), None));
        }
        let host = url.text[..server_end].rsplit('@').next().unwrap_or_default();
        if url.text.starts_with('$') || host.contains('$') {
            let message = "variables in the shell's notation are not replaced";
            let help = Some("for a variable write `$[[env.NAME]]`".to_owned());
            problems.error(url.place, &url.path, message, help);
            return None;
        }
        let (server, at, account) = match Server::of(&url.text) {
            Ok(parts) => parts,
            Err(why) => {
                problems.error(url.place, &url.path, format!("`{}` {why}", url.text), None);
                return None;
            }
        };
        let account = account.map(|account| Text {
            text: account.to_owned(),
            ..url.clone()
        });
        let slash = if url.text[at..].starts_with('/') { "" } else { "/" };
        let target = Text {
            text: format!("{slash}{}", &url.text[at..]),
            ..url.clone()
        };
        let target = self.compile(&target, false, problems)?;
        Some((Url::Fixed { server, target }, account))
    }

    /// Compiles the condition that answers are checked against.
    fn assertion(&self, node: &Node, path: &str, problems: &mut Problems) -> Option<Condition> {
        let compile =
            |text: &Text| Template::compile(&text.text, &mut |name| self.resolve_registered(name).map(Some));
        condition::read(node, &item_path(path, "assert"), &compile, problems)
    }

    fn headers(&self, node: Option<&Node>, path: &str, problems: &mut Problems) -> Headers {
        let mut headers = Headers::default();
        let Some(node) = node else { return headers };
        let entries: Vec<_> = match &node.value {
            Value::Map(entries) => entries.iter().collect(),
            _ => list_of(node, path, problems)
                .into_iter()
                .flat_map(|item| match &item.value {
                    Value::Map(entries) => entries.iter().collect(),
                    _ => {
                        let message = format!("`Name: value` is expected, not {}", item.describe());
                        problems.error(item.place, path, message, None);
                        Vec::new()
                    }
                })
                .collect(),
        };
        for (key, value) in entries {
            let path = format!("{path}.{}", key.name);
            let Ok(name) = HeaderName::from_bytes(key.name.as_bytes()) else {
                let message = format!("`{}` is not a valid header name", key.name.escape_debug());
                problems.error(key.place, &path, message, None);
                continue;
            };
            let text = Text::of(value, &path).unwrap_or(Text {
                text: String::new(),
                place: value.place,
                path: path.clone(),
            });
            let Some(template) = self.compile(&text, false, problems) else {
                continue;
            };
            match template.fixed().map(HeaderValue::from_bytes) {
                None => headers.moving.push((name, template)),
                Some(Ok(value)) => drop(headers.fixed.append(name, value)),
                Some(Err(_)) => {
                    let message = "the value has characters that can't travel in a header";
                    problems.error(value.place, &path, message, None);
                }
            }
        }
        headers
    }

    fn account(
        &self,
        account: Option<&BasicAuth>,
        in_url: Option<Text>,
        headers: &mut Headers,
        problems: &mut Problems,
    ) {
        if headers.fixed.contains_key(AUTHORIZATION) {
            return;
        }
        let (user, password) = match (account, in_url) {
            (Some(account), _) => (account.username.clone(), account.password.clone()),
            (None, Some(in_url)) => {
                let (user, password) = in_url.text.split_once(':').unwrap_or((&in_url.text, ""));
                let text = |text: &str| Text {
                    text: text.to_owned(),
                    ..in_url.clone()
                };
                (text(user), text(password))
            }
            (None, None) => return,
        };
        let user = self.compile(&user, false, problems);
        let password = self.compile(&password, false, problems);
        let (Some(user), Some(password)) = (user, password) else {
            return;
        };
        match (user.fixed(), password.fixed()) {
            (Some(user), Some(password)) => {
                let value = request::basic(&[user, b":", password].concat());
                set(&mut headers.fixed, AUTHORIZATION, value);
            }
            _ => headers.account = Some((user, password)),
        }
    }

    fn body(&self, mut body: Text, repeat: u32, bulk: bool, problems: &mut Problems) -> Option<Body> {
        // Repetitions are separate lines, and a bulk body ends with a line break.
        if (repeat > 1 || bulk) && !body.text.ends_with('\n') {
            body.text.push('\n');
        }
        let varies = |line: &str| {
            let inside = line.trim_start().strip_prefix('{').map(str::trim_start);
            inside.is_none_or(|inside| inside.starts_with("\"$[[") || inside.starts_with("$[["))
        };
        Some(Body {
            uniform: !body.text.lines().any(varies),
            text: self.compile(&body, true, problems)?,
            repeat,
            once: self.line.iter().map(|(_, from)| *from).collect(),
        })
    }
}

fn set(headers: &mut HeaderMap, name: HeaderName, value: HeaderValue) {
    headers.insert(name, value);
}

const AGENT: &str = concat!("tidegate-loadgen/", env!("CARGO_PKG_VERSION"));

//! `when`: the condition under which a filter runs, evaluated on a request's head.
//!
//! Text is compared as it was sent (a path is not decoded), and letter case matters, except in header names.
//! A comparison with a field that the request does not have fails, so its `not` holds.

use std::borrow::Cow;
use std::net::IpAddr;

use http::{HeaderMap, HeaderName, Method, header};
use regex::Regex;

/// What conditions can look at. Everything is borrowed; nothing is computed unless a condition needs it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// `_ctx.request.method`.
    pub method: &'a Method,
    /// `_ctx.request.path`: the path without the query, as sent.
    pub path: &'a str,
    /// The query without the `?`, which contains `_ctx.request.query_args.NAME`.
    pub query: &'a str,
    /// `_ctx.request.header.NAME` and `_ctx.request.host`.
    pub headers: &'a HeaderMap,
    /// `_ctx.remote_ip`.
    pub client: IpAddr,
    /// `_ctx.tls`: whether the client's connection uses TLS.
    pub tls: bool,
    /// `_ctx.request.body_length`: the body's declared length, if it has one.
    pub body_length: Option<u64>,
}

/// A compiled condition.
#[derive(Clone, Debug, PartialEq)]
pub enum When {
    /// All of these conditions hold.
    All(Vec<When>),
    /// At least one of these conditions holds.
    Any(Vec<When>),
    /// This condition does not hold.
    Not(Box<When>),
    /// The request has the field.
    Exists(Field),
    /// The field's text passes the test.
    Field(Field, Test),
}

/// A field of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// `_ctx.request.method`
    Method,
    /// `_ctx.request.path`
    Path,
    /// `_ctx.request.uri`: path and query.
    Uri,
    /// `_ctx.request.host`: the `Host` header.
    Host,
    /// `_ctx.request.header.NAME`
    Header(HeaderName),
    /// `_ctx.request.query_args.NAME`, decoded.
    Query(String),
    /// `_ctx.request.body_length`
    BodyLength,
    /// `_ctx.tls`: `true` or `false`.
    Tls,
    /// `_ctx.remote_ip`
    RemoteIp,
}

/// A test of a text.
#[derive(Clone, Debug)]
pub enum Test {
    /// The text contains one of these.
    Contains(Vec<String>),
    /// The text equals one of these.
    Equals(Vec<String>),
    /// The text begins with one of these.
    Prefix(Vec<String>),
    /// The text ends with one of these.
    Suffix(Vec<String>),
    /// One of these expressions is found in the text.
    Regexp(Vec<Regex>),
    /// The text is a number from the first to the second, both included.
    Range(i64, i64),
}

// === impl When ===

impl When {
    /// Returns whether the condition holds for `request`.
    pub fn holds(&self, request: &Request<'_>) -> bool {
        match self {
            Self::All(all) => all.iter().all(|when| when.holds(request)),
            Self::Any(any) => any.iter().any(|when| when.holds(request)),
            Self::Not(when) => !when.holds(request),
            Self::Exists(field) => field.read(request).is_some(),
            Self::Field(field, test) => field.read(request).is_some_and(|text| test.passes(&text)),
        }
    }
}

/// A name that is not the name of a request's field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadField {
    /// A name that no header can have.
    #[error("`{0}` is not a valid header name")]
    Header(String),
    /// There is a field with a similar name.
    #[error("`{name}` is not a field of a request; did you mean `{near}`?")]
    Near {
        /// The name as it was written.
        name: String,
        /// The similar name.
        near: &'static str,
    },
    /// No field has a similar name.
    #[error("`{0}` is not a field of a request; there are {names}", names = NAMES.join(", "))]
    Unknown(String),
}

// === impl Field ===

impl Field {
    /// Returns the field that `name` stands for.
    ///
    /// # Errors
    /// Returns the similar field name if there is one, otherwise all field names.
    pub fn parse(name: &str) -> Result<Self, BadField> {
        let request = name.strip_prefix("_ctx.request.").unwrap_or_default();
        Ok(match (name, request) {
            (_, "method") => Self::Method,
            (_, "path") => Self::Path,
            (_, "uri") => Self::Uri,
            (_, "host") => Self::Host,
            (_, "body_length") => Self::BodyLength,
            ("_ctx.tls", _) => Self::Tls,
            ("_ctx.remote_ip", _) => Self::RemoteIp,
            _ => {
                if let Some(header) = request.strip_prefix("header.") {
                    return HeaderName::try_from(header)
                        .map(Self::Header)
                        .map_err(|_| BadField::Header(header.to_owned()));
                }
                if let Some(argument) = request.strip_prefix("query_args.") {
                    return Ok(Self::Query(argument.to_owned()));
                }
                let name = name.to_owned();
                return Err(match settings::problem::nearest(&name, NAMES.iter().copied()) {
                    Some(near) => BadField::Near { name, near },
                    None => BadField::Unknown(name),
                });
            }
        })
    }

    fn read<'a>(&self, request: &Request<'a>) -> Option<Cow<'a, str>> {
        Some(match self {
            Self::Method => request.method.as_str().into(),
            Self::Path => request.path.into(),
            Self::Uri if request.query.is_empty() => request.path.into(),
            Self::Uri => format!("{}?{}", request.path, request.query).into(),
            Self::Host => return text_of(request.headers, &header::HOST),
            Self::Header(name) => return text_of(request.headers, name),
            Self::Query(name) => return argument(request.query, name),
            Self::BodyLength => request.body_length?.to_string().into(),
            Self::Tls => if request.tls { "true" } else { "false" }.into(),
            Self::RemoteIp => request.client.to_canonical().to_string().into(),
        })
    }
}

fn text_of<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<Cow<'a, str>> {
    headers
        .get(name)
        .map(|value| String::from_utf8_lossy(value.as_bytes()))
}

/// Returns the first argument `name` of a query, decoded. An argument without `=` is empty.
fn argument<'a>(query: &'a str, name: &str) -> Option<Cow<'a, str>> {
    query.split('&').find_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (!pair.is_empty() && decode(key) == name).then(|| decode(value))
    })
}

fn decode(text: &str) -> Cow<'_, str> {
    if !text.bytes().any(|byte| matches!(byte, b'+' | b'%')) {
        return text.into();
    }
    let spaced = text.replace('+', " ");
    percent_encoding::percent_decode_str(&spaced)
        .decode_utf8_lossy()
        .into_owned()
        .into()
}

// === impl Test ===

impl PartialEq for Test {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Contains(a), Self::Contains(b))
            | (Self::Equals(a), Self::Equals(b))
            | (Self::Prefix(a), Self::Prefix(b))
            | (Self::Suffix(a), Self::Suffix(b)) => a == b,
            (Self::Regexp(a), Self::Regexp(b)) => a.iter().map(Regex::as_str).eq(b.iter().map(Regex::as_str)),
            (Self::Range(a, b), Self::Range(c, d)) => (a, b) == (c, d),
            _ => false,
        }
    }
}

impl Test {
    fn passes(&self, text: &str) -> bool {
        match self {
            Self::Contains(any) => any.iter().any(|part| text.contains(part.as_str())),
            Self::Equals(any) => any.iter().any(|part| text == part),
            Self::Prefix(any) => any.iter().any(|part| text.starts_with(part.as_str())),
            Self::Suffix(any) => any.iter().any(|part| text.ends_with(part.as_str())),
            Self::Regexp(any) => any.iter().any(|regex| regex.is_match(text)),
            Self::Range(from, to) => text
                .parse::<i64>()
                .is_ok_and(|number| (*from..=*to).contains(&number)),
        }
    }
}

const NAMES: &[&str] = &[
    "_ctx.request.method",
    "_ctx.request.path",
    "_ctx.request.uri",
    "_ctx.request.host",
    "_ctx.request.header.NAME",
    "_ctx.request.query_args.NAME",
    "_ctx.request.body_length",
    "_ctx.tls",
    "_ctx.remote_ip",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(when: &When) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert("host", "es:9200".parse().unwrap());
        headers.insert("x-team", "blue".parse().unwrap());
        when.holds(&Request {
            method: &Method::POST,
            path: "/logs/_bulk",
            query: "routing=a%20b&pretty&x=1",
            headers: &headers,
            client: "::ffff:10.1.2.3".parse().unwrap(),
            tls: false,
            body_length: Some(1_024),
        })
    }

    fn field(name: &str, test: Test) -> When {
        When::Field(Field::parse(name).unwrap(), test)
    }

    fn one(text: &str) -> Vec<String> {
        vec!["zzz".to_owned(), text.to_owned()]
    }

    #[test]
    fn every_field_is_read() {
        for (name, text) in [
            ("_ctx.request.method", "POST"),
            ("_ctx.request.path", "/logs/_bulk"),
            ("_ctx.request.uri", "/logs/_bulk?routing=a%20b&pretty&x=1"),
            ("_ctx.request.host", "es:9200"),
            ("_ctx.request.header.X-Team", "blue"),
            ("_ctx.request.query_args.routing", "a b"),
            ("_ctx.request.query_args.pretty", ""),
            ("_ctx.request.body_length", "1024"),
            ("_ctx.tls", "false"),
            ("_ctx.remote_ip", "10.1.2.3"),
        ] {
            assert!(holds(&field(name, Test::Equals(one(text)))), "{name}");
            assert!(holds(&When::Exists(Field::parse(name).unwrap())), "{name}");
            assert!(!holds(&field(name, Test::Equals(vec!["other".into()]))), "{name}");
        }
        assert!(
            Field::parse("_ctx.request.paht")
                .unwrap_err()
                .to_string()
                .contains("did you mean `_ctx.request.path`?")
        );
        assert!(Field::parse("path").is_err());
    }

    #[test]
    fn every_test_can_hold_and_fail() {
        let path = |test| holds(&field("_ctx.request.path", test));
        assert!(path(Test::Contains(one("_bul"))) && !path(Test::Contains(vec!["BULK".into()])));
        assert!(path(Test::Prefix(one("/logs"))) && !path(Test::Prefix(vec!["logs".into()])));
        assert!(path(Test::Suffix(one("_bulk"))) && !path(Test::Suffix(vec!["_bulk/".into()])));
        assert!(path(Test::Regexp(vec![Regex::new("^/l.gs/").unwrap()])));
        assert!(!path(Test::Regexp(vec![Regex::new("^l").unwrap()])));
        let length = |from, to| holds(&field("_ctx.request.body_length", Test::Range(from, to)));
        assert!(length(1_024, 1_024) && !length(0, 1_023) && !length(1_025, i64::MAX));
        assert!(!path(Test::Range(i64::MIN, i64::MAX)), "text is in no range");
    }

    #[test]
    fn a_missing_field_fails_every_test_so_its_negation_holds() {
        let missing = field("_ctx.request.header.absent", Test::Contains(vec![String::new()]));
        assert!(!holds(&missing));
        assert!(holds(&When::Not(Box::new(missing.clone()))));
        assert!(holds(&When::Any(vec![missing.clone(), When::All(vec![])])));
        assert!(!holds(&When::All(vec![When::All(vec![]), missing])));
        assert!(!holds(&When::Any(vec![])));
    }
}

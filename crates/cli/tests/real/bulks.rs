//! Random bulk requests from a seed: valid ones of every kind of action and parameter, and broken ones.
//!
//! Requests are worded for one prefix; `reworded` makes `Request`s for another prefix of the same length.
//! What may differ by a race inside the cluster (two shards that invent a mapping for one field at once) is
//! not generated: each undeclared field always has the same type.

mod broken;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Write as _;

use fastrand::Rng;

use super::http::Request;
use super::server::Server;
use super::world as w;

/// The documents' state according to the answers, so that later operations can use the right `_seq_no`.
#[derive(Default)]
pub(crate) struct Memory {
    /// (index without prefix, id) → (`_seq_no`, `_primary_term`).
    seen: HashMap<(String, String), (u64, u64)>,
}

impl Memory {
    /// Reads the items of an answer for the direct set.
    pub(crate) fn learn(&mut self, prefix: &str, answer: &serde_json::Value) {
        for item in answer["items"].as_array().into_iter().flatten() {
            let Some(result) = item.as_object().and_then(|o| o.values().next()) else {
                continue;
            };
            let (Some(index), Some(id)) = (result["_index"].as_str(), result["_id"].as_str()) else {
                continue;
            };
            let (Some(seq), Some(term)) = (result["_seq_no"].as_u64(), result["_primary_term"].as_u64())
            else {
                continue;
            };
            let index = index.strip_prefix(prefix).unwrap_or(index).to_owned();
            self.seen.insert((index, id.to_owned()), (seq, term));
        }
    }
}

/// Replaces each `from` in `text` with `to`.
pub(crate) fn replaced(text: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with(from) {
            out.extend_from_slice(to);
            at += from.len();
        } else {
            out.push(text[at]);
            at += 1;
        }
    }
    out
}

/// Invents the random bulks of one seed.
pub(crate) struct Inventor<'a> {
    rng: Rng,
    seed: u64,
    prefix: &'a str,
    server: &'a Server,
    pub(crate) memory: Memory,
    count: u32,
    /// Whether the current bulk contains only what a gateway can take apart; its items may still fail in
    /// their own ways.
    calm: bool,
    /// Whether bulks that can be taken apart all have the same head, so that those of several clients may
    /// travel together, and nothing depends on other clients' writes.
    in_company: bool,
    /// Whether the current bulk runs documents through pipelines. Some servers make such documents share a
    /// fate, so the bulk is never split.
    piped: bool,
}

/// A request, with its special features.
pub(crate) struct Invented {
    request: Request,
    gzip: bool,
    pub(crate) what: String,
}

impl Invented {
    /// Returns the request worded for the index set of another prefix of the same length.
    pub(crate) fn worded(&self, from: &str, to: &str) -> Request {
        assert_eq!(
            from.len(),
            to.len(),
            "only prefixes of one length keep every byte's place"
        );
        let mut request = self.request.clone();
        request.target = request.target.replace(from, to);
        request.body = replaced(&request.body, from.as_bytes(), to.as_bytes());
        if self.gzip {
            let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            gz.write_all(&request.body).expect("a Vec takes every write");
            request.body = gz.finish().expect("a Vec takes every write");
            request = request.header("Content-Encoding", "gzip");
        }
        request
    }
}

impl<'a> Inventor<'a> {
    pub(crate) fn new(seed: u64, prefix: &'a str, server: &'a Server) -> Self {
        Self {
            rng: Rng::with_seed(seed),
            seed,
            prefix,
            server,
            memory: Memory::default(),
            count: 0,
            calm: false,
            in_company: false,
            piped: false,
        }
    }

    /// Configures the inventor for one of several clients whose bulks are to travel together.
    pub(crate) fn in_company(mut self) -> Self {
        self.in_company = true;
        self
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.rng.u32(0..n) == 0
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.rng.usize(0..from.len())].clone()
    }

    /// Invents the next request.
    pub(crate) fn next(&mut self) -> Invented {
        self.count += 1;
        let broken = self.one_in(if self.in_company { 12 } else { 4 });
        self.calm = !broken && !self.one_in(4);
        // Bulks with pipelines do not travel together.
        self.piped = !self.in_company && self.one_in(4);
        let default_index = if !self.in_company && self.one_in(3) {
            Some(self.usual_index())
        } else {
            None
        };
        let operations = match self.rng.u32(0..20) {
            0 => self.rng.usize(200..1500),
            1..=5 => self.rng.usize(1..4),
            _ => self.rng.usize(2..40),
        };
        let crlf = !self.calm && self.one_in(15);
        let blank_lines = !self.calm && self.one_in(15);
        let break_at = if broken {
            self.rng.usize(0..operations.min(60))
        } else {
            usize::MAX
        };
        let mut what = String::from("valid");
        let mut body = Vec::new();
        for n in 0..operations {
            if n == break_at {
                what = self.broken_operation(&mut body, default_index.is_some());
                continue;
            }
            let start = body.len();
            self.operation(&mut body, default_index.as_deref());
            if crlf {
                let lines = replaced(&body[start..], b"\n", b"\r\n");
                body.truncate(start);
                body.extend_from_slice(&lines);
            }
            if blank_lines && self.one_in(4) {
                body.extend_from_slice(if crlf { b"\r\n" } else { b"\n" });
            }
        }
        if crlf {
            what.push_str(", \\r\\n");
        }
        if blank_lines {
            what.push_str(", blank lines");
        }
        if !self.calm && self.one_in(10) {
            body.pop();
            what.push_str(", no final newline");
        }
        if !self.calm && self.one_in(30) {
            body.clear();
            what.push_str(", empty body");
        }
        let broken_frame = broken && self.one_in(3);
        let mut request = self.frame(default_index, broken_frame, &mut what);
        let gzip = self.one_in(12) && !body.is_empty();
        if gzip {
            what.push_str(", gzip");
        }
        request.body = body;
        Invented { request, gzip, what }
    }

    /// Invents method, path, parameters and headers.
    fn frame(&mut self, default_index: Option<String>, broken: bool, what: &mut String) -> Request {
        if self.in_company && self.calm {
            return Request::new("POST", "/_bulk").header("Content-Type", "application/x-ndjson");
        }
        let method = if self.one_in(6) { "PUT" } else { "POST" };
        let mut target = match &default_index {
            Some(index) => format!("/{}/_bulk", escaped_path(index)),
            None => "/_bulk".to_owned(),
        };
        if self.one_in(40) {
            target.push('/');
        }
        let mut parameters: Vec<String> = Vec::new();
        if self.one_in(8) {
            parameters.push(
                self.pick(&["refresh=true", "refresh", "refresh=false"])
                    .to_owned(),
            );
        }
        if self.one_in(10) {
            let routing = self.pick(&["1", "b%20c", "%E6%97%A5", "%F0%9F%A6%80"]);
            parameters.push(format!("routing={routing}"));
        }
        if self.piped && self.one_in(4) {
            let pipeline = self.some_pipeline();
            parameters.push(format!("pipeline={pipeline}"));
        }
        if self.one_in(15) {
            parameters.push(
                self.pick(&[
                    "timeout=30s",
                    "wait_for_active_shards=1",
                    "timeout=2m",
                    "wait_for_active_shards=all",
                ])
                .to_owned(),
            );
        }
        if self.one_in(15) {
            parameters.push(
                self.pick(&[
                    "_source=true",
                    "_source=false",
                    "_source_includes=n",
                    "_source_excludes=t",
                    "_source=n,t",
                ])
                .to_owned(),
            );
        }
        if self.one_in(25) {
            parameters.push(
                self.pick(&["require_alias=true", "require_alias=false"])
                    .to_owned(),
            );
        }
        if !self.calm && self.one_in(8) {
            parameters.push(
                self.pick(&[
                    "filter_path=items.*.status",
                    "filter_path=-took,-items.*._shards",
                    "filter_path=errors",
                    "pretty",
                    "pretty=true",
                    "human",
                    "format=json",
                ])
                .to_owned(),
            );
        }
        if self.server.is_es((8, 0)) && self.one_in(20) {
            parameters.push(
                self.pick(&["list_executed_pipelines=true", "require_data_stream=false"])
                    .to_owned(),
            );
        }
        if broken {
            let odd = self.pick(&[
                "bogus=1",
                "refresh=maybe",
                "timeout=soon",
                "wait_for_active_shards=-3",
                "batch_size=10",
                "batch_size=0",
                "list_executed_pipelines=true",
                "require_data_stream=true",
                "type=_doc",
                "fields=n",
                "format=yaml",
                "require_alias=perhaps",
                "include_source_on_error=false",
                "op_type=create",
                "version=3",
                "routing=",
                "pipeline=",
                "refresh=wait_for&refresh=false",
            ]);
            parameters.push(odd.to_owned());
            let _ = write!(what, ", ?{odd}");
        }
        if !parameters.is_empty() {
            target = format!("{target}?{}", parameters.join("&"));
        }
        let mut request = Request::new(method, &target);
        let content_type = if broken && self.one_in(3) {
            self.pick(&[
                "",
                "text/plain",
                "application/x-www-form-urlencoded",
                "application/cbor",
                "application/vnd.elasticsearch+x-ndjson;compatible-with=8",
            ])
        } else {
            self.pick(&[
                "application/x-ndjson",
                "application/x-ndjson",
                "application/json",
                "application/json; charset=utf-8",
                "application/x-ndjson;charset=UTF-8",
            ])
        };
        if !content_type.is_empty() {
            request = request.header("Content-Type", content_type);
        }
        if self.one_in(10) {
            let opaque = format!("seed-{}-{}", self.seed, self.count);
            request = request.header("X-Opaque-Id", &opaque);
        }
        if self.one_in(10) {
            request = request.header("Accept-Encoding", "gzip");
        }
        if self.one_in(15) {
            request = request.header("Accept", self.pick(&["application/json", "*/*"]));
        }
        request
    }

    fn usual_index(&mut self) -> String {
        let suffix = self.pick(&[
            w::PLAIN,
            w::SECOND,
            w::ALIAS_ONE,
            w::ALIAS_ROUTED,
            w::ALIAS_WRITE,
            w::PARTED,
            w::AUTO,
            w::STREAM,
            self.piped_or_plain(),
        ]);
        format!("{}{suffix}", self.prefix)
    }

    /// Picks an index: mostly one where writing works, now and then one that refuses in its own way.
    fn some_index(&mut self) -> String {
        if !self.calm && self.one_in(14) {
            let suffix = self.pick(&[
                w::CLOSED,
                w::BLOCKED,
                w::ALIAS_TWO,
                w::STRICT,
                w::MUST,
                w::ALIAS_FILTER,
            ]);
            return format!("{}{suffix}", self.prefix);
        }
        if !self.calm && self.one_in(40) {
            return match self.rng.u32(0..6) {
                0 => format!("{}{}{}-{}", self.prefix, w::NEW, self.seed, self.count / 8),
                1 => format!("<{}math-{{now/M}}>", self.prefix),
                2 => format!("{}Upper", self.prefix),
                3 => format!("{}{},{}{}", self.prefix, w::PLAIN, self.prefix, w::SECOND),
                4 => format!("{}pl*", self.prefix),
                _ => format!("-{}{}", self.prefix, w::PLAIN),
            };
        }
        let suffix = self.pick(&[
            w::PLAIN,
            w::PLAIN,
            w::PLAIN,
            w::SECOND,
            w::SECOND,
            w::PARTED,
            w::MUST,
            w::ALIAS_ONE,
            w::ALIAS_ROUTED,
            w::ALIAS_WRITE,
            w::STREAM,
            self.piped_or_plain(),
            w::STRICT,
        ]);
        format!("{}{suffix}", self.prefix)
    }

    fn piped_or_plain(&self) -> &'static str {
        if self.piped { w::PIPED } else { w::PLAIN }
    }

    fn some_pipeline(&mut self) -> String {
        if self.calm {
            let usual = if self.server.has_processors() {
                w::PIPELINE_SET
            } else {
                w::PIPELINE_EMPTY
            };
            return self.pick(&["_none".to_owned(), format!("{}{usual}", self.prefix)]);
        }
        match self.rng.u32(0..10) {
            0 => "_none".to_owned(),
            1 => format!("{}missing", self.prefix),
            2 | 3 => format!("{}{}", self.prefix, w::PIPELINE_EMPTY),
            4 => format!("{}{}", self.prefix, w::PIPELINE_MOVE),
            5 => format!("{}{}", self.prefix, w::PIPELINE_FAIL),
            6 => format!("{}{}", self.prefix, w::PIPELINE_DROP),
            _ => format!("{}{}", self.prefix, w::PIPELINE_SET),
        }
    }

    fn some_id(&mut self) -> String {
        let n = self.rng.u32(0..12);
        let tail = match self.rng.u32(0..16) {
            0 => "\"q\\b/".to_owned(),
            1 => "tab\tnl\ncr\r\u{1}".to_owned(),
            2 => "日本語".to_owned(),
            3 => "🦀𐍈".to_owned(),
            4 => "é\u{301}ß".to_owned(),
            5 => "x".repeat(self.rng.usize(100..480)),
            6 => " spaced + %25 ".to_owned(),
            _ => String::new(),
        };
        format!("s{}-{n}{tail}", self.seed)
    }

    /// Returns a JSON string for `text`, with needless escapes here and there.
    fn quoted(&mut self, text: &str) -> String {
        let eager = self.one_in(10);
        let mut out = String::from("\"");
        for c in text.chars() {
            // The prefix must stay readable, since it is replaced to word the request for the other set.
            let escape = eager && !c.is_ascii_lowercase() && c != '-' && self.one_in(3);
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' if !escape => out.push_str("\\n"),
                c if escape || (c as u32) < 0x20 => {
                    let mut units = [0; 2];
                    for unit in c.encode_utf16(&mut units) {
                        let _ = if self.rng.bool() {
                            write!(out, "\\u{unit:04x}")
                        } else {
                            write!(out, "\\u{unit:04X}")
                        };
                    }
                }
                c => out.push(c),
            }
        }
        out.push('"');
        out
    }

    /// Writes one operation, with its source line, that the bulk parser accepts.
    fn operation(&mut self, body: &mut Vec<u8>, default_index: Option<&str>) {
        let mut fields: Vec<String> = Vec::new();
        let mut target = default_index.map(str::to_owned);
        if default_index.is_none() || self.one_in(5) {
            let index = self.some_index();
            let quoted = self.quoted(&index);
            fields.push(format!("\"_index\":{quoted}"));
            target = Some(index);
        }
        let target = target.unwrap_or_default();
        let suffix = target.strip_prefix(self.prefix).unwrap_or("").to_owned();
        let mut action = self.pick(&["index", "index", "index", "create", "update", "delete"]);
        if suffix == w::STREAM && !self.one_in(6) {
            action = "create";
        }
        // Documents without an id go to an index of their own, where `_seq_no` can't be predicted.
        let mut id = None;
        let nameless = suffix == w::AUTO && matches!(action, "index" | "create") && !self.one_in(5);
        if !nameless {
            match self.rng.u32(0..60) {
                0 if !self.calm => fields.push(format!("\"_id\":{}", self.seed * 1000 + 7)),
                1 if !self.calm && matches!(action, "update" | "delete") && self.one_in(4) => {
                    fields.push("\"_id\":null".to_owned())
                }
                _ => {
                    let text = self.some_id();
                    let quoted = self.quoted(&text);
                    fields.push(format!("\"_id\":{quoted}"));
                    id = Some(text);
                }
            }
        } else if !self.calm && self.one_in(5) {
            fields.push("\"_id\":null".to_owned());
        }
        let needs_routing = suffix == w::PARTED || suffix == w::MUST;
        if (needs_routing && !self.one_in(12)) || self.one_in(8) {
            let routing = self.pick(&[
                "\"a\"",
                "\"b c\"",
                "\"日本\"",
                "\"\\ud83e\\udd80\"",
                "7",
                "\"7\"",
                "\"r,s\"",
                "true",
                "null",
                "\"\"",
            ]);
            let routing = if self.calm && !routing.contains(|c: char| !c.is_alphanumeric()) {
                "\"calm\""
            } else {
                routing
            };
            let routing = if self.calm && routing == "\"\"" {
                "\"calm\""
            } else {
                routing
            };
            fields.push(format!("\"routing\":{routing}"));
        }
        let mut versioned = true;
        if self.one_in(14) && matches!(action, "index" | "delete") && !nameless {
            let version = self.rng.u64(1..6);
            let kind = self.pick(&["external", "external_gte"]);
            fields.push(format!("\"version\":{version}"));
            fields.push(format!("\"version_type\":\"{kind}\""));
        } else if suffix != w::AUTO && !self.in_company && self.one_in(12) && action != "create" {
            let known = id
                .clone()
                .and_then(|id| self.memory.seen.get(&(suffix.clone(), id)).copied());
            let (seq, term) = match known {
                Some(pair) if !self.one_in(4) => pair,
                _ => (self.rng.u64(0..40), 1),
            };
            fields.push(format!("\"if_seq_no\":{seq}"));
            fields.push(format!("\"if_primary_term\":{term}"));
        } else {
            versioned = false;
        }
        if self.piped && action != "delete" && action != "update" && self.one_in(5) {
            let pipeline = self.some_pipeline();
            fields.push(format!("\"pipeline\":\"{pipeline}\""));
        }
        if action != "delete" && !self.calm && self.one_in(20) {
            fields.push(
                self.pick(&[
                    "\"require_alias\":true",
                    "\"require_alias\":false",
                    "\"require_alias\":\"true\"",
                ])
                .to_owned(),
            );
        }
        if action == "update" && !versioned && !self.calm && self.one_in(6) {
            fields.push(
                self.pick(&["\"retry_on_conflict\":3", "\"retry_on_conflict\":\"2\""])
                    .to_owned(),
            );
        }
        if action == "update" && !self.calm && self.one_in(8) {
            fields.push(
                self.pick(&["\"_source\":true", "\"_source\":false", "\"_source\":\"t\""])
                    .to_owned(),
            );
        }
        if action == "index" && !versioned && self.one_in(20) {
            fields.push(
                self.pick(&["\"op_type\":\"create\"", "\"op_type\":\"index\""])
                    .to_owned(),
            );
        }
        if self.server.is_es((7, 13)) && matches!(action, "index" | "create") && self.one_in(20) {
            fields.push("\"dynamic_templates\":{\"kw_a\":\"as_kw\",\"kw.b\":\"as_kw\"}".to_owned());
        }
        if self.server.is_es((8, 0)) && matches!(action, "index" | "create") && self.one_in(25) {
            fields.push(
                self.pick(&[
                    "\"list_executed_pipelines\":true",
                    "\"require_data_stream\":false",
                ])
                .to_owned(),
            );
        }
        self.rng.shuffle(&mut fields);
        let space = if self.one_in(6) { " " } else { "" };
        let line = format!(
            "{space}{{{space}\"{action}\"{space}:{space}{{{}}}{space}}}\n",
            fields.join(&format!("{space},{space}"))
        );
        body.extend_from_slice(line.as_bytes());
        if action != "delete" {
            let source = if action == "update" {
                self.update_source(versioned)
            } else {
                self.source()
            };
            body.extend_from_slice(source.as_bytes());
            body.push(b'\n');
        }
    }

    fn source(&mut self) -> String {
        let mut fields = vec![
            format!("\"n\":{}", self.rng.i32(-5..1000)),
            format!("\"@timestamp\":\"2026-11-{:02}T10:00:00Z\"", self.rng.u32(1..28)),
        ];
        match self.rng.u32(0..24) {
            0 => fields.push("\"d\":\"not a date\"".to_owned()),
            1 => fields[0] = "\"n\":\"abc \\\"x\\\" \\u00e9 ☃\"".to_owned(),
            2 => fields.push("\"o\":\"text where an object belongs\"".to_owned()),
            3 => fields.push(format!(
                "\"txt\":\"{}\"",
                "long words ".repeat(self.rng.usize(100..4000))
            )),
            4 => fields.push("\"txt\":\"\\u007b\\\"a\\\":\\\"b\\\\\\\\\"".to_owned()),
            5 => fields.push("\"t\":[\"a\",\"b\",null]".to_owned()),
            6 => fields.push(format!("\"dyn_long\":{}", self.rng.u32(0..9))),
            7 => fields.push("\"t\" : \"{\\\"index\\\":{}}\\n\"".to_owned()),
            8 => fields.push("\"kw_a\":\"x\"".to_owned()),
            9 => fields.push("\"d\":\"2026-11-20\",\"o\":{\"x\":3}".to_owned()),
            10 => {
                return self
                    .pick(&[
                        "{}",
                        "  {\"n\":1}  ",
                        "{\"n\":1",
                        "[]",
                        "17",
                        "\"text\"",
                        "null",
                        "{\"n\":1}{\"n\":2}",
                        "{\"n\":1}}",
                        "not json",
                        "{\"n\":01}",
                        "{'n':1}",
                    ])
                    .to_owned();
            }
            _ => fields.push(format!("\"t\":\"v{}\"", self.rng.u32(0..100))),
        }
        format!("{{{}}}", fields.join(","))
    }

    fn update_source(&mut self, versioned: bool) -> String {
        let doc = self.source();
        let whole = doc.starts_with('{') && serde_json::from_str::<serde_json::Value>(&doc).is_ok();
        let doc = if whole { doc } else { "{\"n\":4}".to_owned() };
        if versioned {
            return format!("{{\"doc\":{doc}}}");
        }
        match self.rng.u32(0..12) {
            0 => format!("{{\"doc\":{doc},\"doc_as_upsert\":true}}"),
            1 => format!("{{\"doc\":{doc},\"upsert\":{{\"n\":9}}}}"),
            2 => format!("{{\"doc\":{doc},\"detect_noop\":false}}"),
            3 if !self.calm => format!("{{\"doc\":{doc},\"_source\":true}}"),
            4 if self.server.has_processors() => {
                "{\"script\":{\"source\":\"ctx._source.n = 5\",\"lang\":\"painless\"},\"upsert\":{\"n\":1}}"
                    .to_owned()
            }
            5 if self.server.has_processors() => {
                "{\"scripted_upsert\":true,\"script\":\"ctx._source.n = 6\",\"upsert\":{}}".to_owned()
            }
            6 if self.server.has_processors() => "{\"script\":{\"source\":\"ctx.op = 'delete'\"}}".to_owned(),
            _ => format!("{{\"doc\":{doc},\"doc_as_upsert\":{}}}", self.rng.bool()),
        }
    }
}

fn escaped_path(index: &str) -> String {
    index
        .replace('<', "%3C")
        .replace('>', "%3E")
        .replace('{', "%7B")
        .replace('}', "%7D")
        .replace('/', "%2F")
}

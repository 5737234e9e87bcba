//! Random writes of single documents, from a seed.

use std::collections::BTreeMap;
use std::io::Write as _;

use serde_json::json;

use super::http::{Answer, Request};
use super::server::Server;
use super::world::{
    ALIAS_FILTER, ALIAS_ONE, ALIAS_ROUTED, ALIAS_TWO, ALIAS_WRITE, AUTO, BLOCKED, CLOSED, MUST, NEW, PARTED,
    PIPED, PIPELINE_DROP, PIPELINE_EMPTY, PIPELINE_FAIL, PIPELINE_SET, PLAIN, SECOND, STREAM, STRICT,
};

/// Invents requests for the index set of a prefix.
pub(crate) struct Inventor {
    rng: fastrand::Rng,
    prefix: String,
    /// Whether there are scripts and ingest processors.
    processors: bool,
    /// The media types that Elasticsearch's own clients send and accept.
    versioned: Option<String>,
    /// The latest sequence number and primary term of a document, by the path that it was written to.
    heard: BTreeMap<String, (u64, u64)>,
    asked: String,
}

/// Ids as they are written in a URL.
const IDS: [&str; 12] = [
    "1",
    "2",
    "3",
    "a%2Fb",
    "a+b",
    "%C3%A9%F0%9F%98%80",
    "%22q%22%5C",
    "a%20b",
    "%01%09",
    "x~%28*%29",
    "UPPER.low-er",
    "%E6%97%A5",
];

impl Inventor {
    pub(crate) fn new(seed: u64, prefix: &str, server: &Server) -> Self {
        Self {
            rng: fastrand::Rng::with_seed(seed),
            prefix: prefix.to_owned(),
            processors: server.has_processors(),
            versioned: server.is_es((8, 0)).then(|| {
                format!(
                    "application/vnd.elasticsearch+json;compatible-with={}",
                    server.version.0
                )
            }),
            heard: BTreeMap::new(),
            asked: String::new(),
        }
    }

    /// Invents the next request.
    pub(crate) fn next(&mut self) -> Request {
        let index = self.index();
        let index = format!("{}{index}", self.prefix);
        let id = match self.rng.u8(..60) {
            0 => "x".repeat(513),
            1 => "%C3%A9".repeat(256),
            2 => "_odd".to_owned(),
            3 => "%ff".to_owned(),
            _ => IDS[self.rng.usize(..IDS.len())].to_owned(),
        };
        let path = format!("/{index}/_doc/{id}");
        let mut request = match self.rng.u8(..20) {
            0..=2 => self.write("PUT", &path),
            3..=5 => self.write("POST", &path),
            6..=8 => self.write("PUT", &format!("/{index}/_create/{id}")),
            9 => self.write("POST", &format!("/{}{AUTO}/_doc", self.prefix)),
            10..=12 => Request::new("DELETE", &path),
            _ => self.update(&format!("/{index}/_update/{id}")),
        };
        let mut parameters = self.parameters(&request, &path);
        if index.ends_with(PARTED) || index.ends_with(MUST) && self.rng.u8(..4) > 0 {
            parameters.push("routing=r%2F1".to_owned());
        }
        parameters.sort();
        parameters.dedup_by(|a, b| a.split('=').next() == b.split('=').next());
        self.rng.shuffle(&mut parameters);
        if !parameters.is_empty() {
            request.target = format!("{}?{}", request.target, parameters.join("&"));
        }
        match self.rng.u8(..25) {
            0 => request
                .headers
                .push(("X-Opaque-Id".to_owned(), "seven".to_owned())),
            1 => request
                .headers
                .push(("Accept".to_owned(), "application/json".to_owned())),
            2 => request.headers.push(("Accept".to_owned(), "*/*".to_owned())),
            _ => {}
        }
        let own_client = self.versioned.clone().filter(|_| self.rng.u8(..3) == 0);
        if let Some(versioned) = own_client {
            request.headers.retain(|(name, _)| name != "Accept");
            for (_, value) in request
                .headers
                .iter_mut()
                .filter(|(name, _)| name == "Content-Type")
            {
                value.clone_from(&versioned);
            }
            request.headers.push(("Accept".to_owned(), versioned));
        }
        if !request.body.is_empty() && self.rng.u8(..8) == 0 {
            request.body = packed(&request.body);
            request
                .headers
                .push(("Content-Encoding".to_owned(), "gzip".to_owned()));
        }
        self.asked = path;
        request
    }

    /// Learns from the answer to the last request.
    pub(crate) fn learn(&mut self, answer: &Answer) {
        let Ok(value) = answer.value() else { return };
        if let (Some(seq_no), Some(term)) = (value["_seq_no"].as_u64(), value["_primary_term"].as_u64()) {
            self.heard.insert(self.asked.clone(), (seq_no, term));
        }
    }

    fn index(&mut self) -> String {
        let names = [
            PLAIN,
            PLAIN,
            PLAIN,
            PLAIN,
            PLAIN,
            SECOND,
            SECOND,
            STRICT,
            PARTED,
            MUST,
            PIPED,
            ALIAS_ONE,
            ALIAS_ROUTED,
            ALIAS_WRITE,
            ALIAS_FILTER,
        ];
        match self.rng.u8(..40) {
            0 => CLOSED.to_owned(),
            1 => BLOCKED.to_owned(),
            2 => ALIAS_TWO.to_owned(),
            3 => STREAM.to_owned(),
            4 => format!("{NEW}{}", self.rng.u8(..3)),
            _ => names[self.rng.usize(..names.len())].to_owned(),
        }
    }

    fn write(&mut self, method: &str, target: &str) -> Request {
        let body = self.source();
        let mut request = Request::new(method, target);
        let content_type = match self.rng.u8(..30) {
            0 => "application/json; charset=UTF-8",
            1 => "application/x-ndjson",
            2 => "text/plain",
            _ => "application/json",
        };
        request
            .headers
            .push(("Content-Type".to_owned(), content_type.to_owned()));
        request.body = body;
        request
    }

    fn source(&mut self) -> Vec<u8> {
        let n = self.rng.u8(..5);
        let plain = json!({"n": n, "t": "x"}).to_string();
        let odd: [&[u8]; 11] = [
            b"{\"n\":\"no number\"}",
            b"{\"d\":\"no date\",\"n\":1}",
            b"{\"n\":1",
            b"[1]",
            b"",
            b"{\"n\":1,\"n\":2}",
            b"{\"_id\":\"x\"}",
            b"{\"t\":\"\xff\"}",
            b"{\"o\":7}",
            b"{\"txt\":\"a\nb\"}",
            b"{\"unknown\":{\"deep\":[1,{\"x\":null}]}}",
        ];
        match self.rng.u8(..16) {
            0 => b"{}".to_vec(),
            1 => format!("  {{ \"n\" : {n} , \"txt\":\"\\u00e9 \\n \u{1F600}\" }}\t").into_bytes(),
            2 => format!("{{\n  \"n\": {n}\r\n}}\n").into_bytes(),
            3 => format!("{plain}\n").into_bytes(),
            4..=6 => odd[self.rng.usize(..odd.len())].to_vec(),
            7 => json!({"@timestamp": "2026-11-01T00:00:00Z", "n": n})
                .to_string()
                .into_bytes(),
            _ => plain.into_bytes(),
        }
    }

    fn update(&mut self, target: &str) -> Request {
        let n = self.rng.u8(..4);
        let script = json!({"source": "ctx._source.n = params.n", "params": {"n": n}});
        let mut body = match self.rng.u8(..16) {
            0..=3 => json!({"doc": {"n": n}}),
            4 | 5 => json!({"doc": {"n": n}, "doc_as_upsert": true}),
            6 => json!({"doc": {"n": n}, "upsert": {"n": 7}}),
            7 => json!({"doc": {"n": n}, "detect_noop": false}),
            8 => json!({"doc": {"n": "no number"}}),
            9 => json!({"doc": {}}),
            10 if self.processors => json!({"script": script}),
            11 if self.processors => json!({"script": script, "upsert": {"n": 1}}),
            12 if self.processors => json!({"script": "ctx.op = 'delete'"}),
            13 if self.processors => json!({"script": "ctx.op = 'none'"}),
            14 if self.processors => json!({"script": "no script at all"}),
            15 => json!({"no": "update"}),
            _ => json!({"doc": {"t": "y"}}),
        }
        .to_string();
        if self.rng.u8(..6) == 0 {
            body = format!("{}\n", body.replace(',', ",\n  "));
        }
        let mut request = Request::new("POST", target).header("Content-Type", "application/json");
        request.body = body.into_bytes();
        request
    }

    fn parameters(&mut self, request: &Request, path: &str) -> Vec<String> {
        let mut some = Vec::new();
        let update = request.target.contains("/_update/");
        let delete = request.method == "DELETE";
        let (seq_no, term) = self.heard.get(path).copied().unwrap_or((0, 1));
        for _ in 0..self.rng.usize(..3) {
            let version = self.rng.u8(..20);
            let pipeline = match self.rng.u8(..4) {
                0 if self.processors => PIPELINE_SET,
                1 if self.processors => PIPELINE_FAIL,
                2 if self.processors => PIPELINE_DROP,
                _ => PIPELINE_EMPTY,
            };
            let more = match self.rng.u8(..24) {
                0 => vec!["refresh=true".to_owned()],
                1 => vec!["refresh".to_owned()],
                2 => vec!["refresh=false".to_owned()],
                3 => vec!["routing=a+b".to_owned()],
                4 => vec!["routing=7".to_owned()],
                5 => vec!["timeout=30s".to_owned()],
                6 => vec!["wait_for_active_shards=1".to_owned()],
                7 | 8 if !update => vec!["version_type=external".to_owned(), format!("version={version}")],
                9 if !update => vec![
                    "version_type=external_gte".to_owned(),
                    format!("version={version}"),
                ],
                10 | 11 => vec![format!("if_seq_no={seq_no}"), format!("if_primary_term={term}")],
                12 => vec!["if_seq_no=9999".to_owned(), "if_primary_term=1".to_owned()],
                13 => vec!["if_seq_no=1".to_owned()],
                14 if !update && !delete => vec!["op_type=create".to_owned()],
                15 if !update && !delete => vec!["op_type=index".to_owned()],
                16 if !delete => vec!["require_alias=true".to_owned()],
                17 if update => vec!["_source=true".to_owned()],
                18 if update => vec!["_source=n".to_owned()],
                19 if update => vec!["retry_on_conflict=2".to_owned()],
                20 => vec!["pretty".to_owned()],
                21 => vec!["filter_path=result,error.type".to_owned()],
                22 => vec!["timeout=nonsense".to_owned()],
                _ if !update && !delete => vec![format!("pipeline={}{pipeline}", self.prefix)],
                _ => vec!["unknown=1".to_owned()],
            };
            some.extend(more);
        }
        some
    }
}

fn packed(body: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(body).expect("memory takes all");
    packer.finish().expect("memory takes all")
}

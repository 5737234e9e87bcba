//! The console's process, and the browser's part of the conversation.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};
use testkit::client::Client;

/// The first user's password.
pub(crate) const PASSWORD: &str = "correct horse battery";

/// Any port of this machine.
const ANY_PORT: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));

/// A running console; killed when dropped.
pub(crate) struct Console {
    process: Child,
    folder: Arc<tempfile::TempDir>,
    origin: String,
    /// The one-time link's secret, if one was printed.
    pub(crate) link: Option<String>,
    pub(crate) link_url: Option<String>,
    /// The file with the certificates to trust, if the console uses TLS.
    ca: Option<PathBuf>,
    cookie: Mutex<Option<String>>,
    log: Arc<Mutex<String>>,
}

/// An answer that has been read.
pub(crate) struct Told {
    pub(crate) status: u16,
    pub(crate) text: String,
    /// Null if the answer is not JSON.
    pub(crate) json: Value,
    headers: Vec<(String, String)>,
}

impl Told {
    /// Returns a header; empty if it is not there.
    pub(crate) fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(given, _)| given == name);
        found.map_or("", |(_, value)| value)
    }
}

/// Asks as somebody else: as nobody in particular, or as another user.
pub(crate) struct Other<'a> {
    console: &'a Console,
    cookie: Option<String>,
}

impl Other<'_> {
    pub(crate) fn get(&self, path: &str) -> Told {
        self.console.send_as(self.cookie.as_deref(), "GET", path, &[], "")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Told {
        let cookie = self.cookie.as_deref();
        self.console
            .send_as(cookie, "POST", path, &SAME_ORIGIN, &body.to_string())
    }

    /// The first events of a stream; `seen` is called with each of them.
    pub(crate) fn events(&self, count: usize, seen: impl FnMut(&Value)) {
        self.console
            .events_as(self.cookie.as_deref().unwrap(), count, seen);
    }
}

impl Console {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::listening(ANY_PORT, arguments)
    }

    /// Starts a console at an address that has to be known before.
    pub(crate) fn listening(address: SocketAddr, arguments: &[&str]) -> Self {
        Self::at(Arc::new(tempfile::tempdir().unwrap()), address, arguments, true)
    }

    /// Starts a new process with the same store.
    pub(crate) fn restarted(self) -> Self {
        self.restarted_listening(ANY_PORT, &[])
    }

    /// Starts a new process with the same store, at an address that has to be known before.
    pub(crate) fn restarted_listening(self, address: SocketAddr, arguments: &[&str]) -> Self {
        let folder = Arc::clone(&self.folder);
        drop(self);
        Self::at(folder, address, arguments, false)
    }

    /// Starts a console with TLS, with a self-signed certificate.
    pub(crate) fn over_tls(certificate: &Path, key: &Path) -> Self {
        let files = [certificate, key].map(|file| file.to_str().unwrap());
        let mut console = Self::start(&["--tls-cert", files[0], "--tls-key", files[1]]);
        console.ca = Some(certificate.to_owned());
        console
    }

    /// Starts a console with a cluster, a gateway and load of its own, in the folder `temp`.
    pub(crate) fn demo() -> Self {
        let temp = Arc::new(tempfile::tempdir().unwrap());
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command
            .args(["console", "--listen", "127.0.0.1:0", "--demo"])
            .env("TMPDIR", temp.path());
        Self::launch(temp, &mut command, true)
    }

    fn at(folder: Arc<tempfile::TempDir>, address: SocketAddr, arguments: &[&str], first: bool) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command
            .args(["console", "--listen", &address.to_string(), "--data"])
            .arg(folder.path())
            .args(arguments);
        Self::launch(folder, &mut command, first)
    }

    fn launch(folder: Arc<tempfile::TempDir>, command: &mut Command, first: bool) -> Self {
        let mut process = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let kept = Arc::clone(&log);
        let errors = BufReader::new(process.stderr.take().unwrap()).lines();
        std::thread::spawn(move || {
            for line in errors.map_while(Result::ok) {
                let mut log = kept.lock();
                log.push_str(&line);
                log.push('\n');
            }
        });
        let mut lines = BufReader::new(process.stdout.take().unwrap())
            .lines()
            .map_while(Result::ok);
        let line = lines
            .next()
            .unwrap_or_else(|| panic!("it did not start: {}", log.lock()));
        let url = line.strip_prefix("console: ").unwrap().to_owned();
        let origin = url.split('/').take(3).collect::<Vec<_>>().join("/");
        // The line before the link explains it.
        let link_url = if first { lines.nth(1) } else { None };
        let link = link_url
            .as_ref()
            .and_then(|url| Some(url.split_once("#setup=")?.1.to_owned()));
        Self {
            process,
            folder,
            origin,
            link,
            link_url,
            ca: None,
            cookie: Mutex::new(None),
            log,
        }
    }

    /// Makes the first user, who is then logged in.
    pub(crate) fn set_up(self) -> Self {
        let setup = json!({"link": self.link, "name": "ada", "password": PASSWORD});
        assert_eq!(self.post("/api/setup", &setup).status, 200);
        self
    }

    pub(crate) fn address(&self) -> &str {
        self.origin.split_once("://").unwrap().1
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().clone()
    }

    pub(crate) fn without_cookie(&self) -> Other<'_> {
        Other {
            console: self,
            cookie: None,
        }
    }

    /// Another user, logged in.
    pub(crate) fn logged_in_as(&self, name: &str, password: &str) -> Other<'_> {
        let login = json!({"name": name, "password": password});
        let told = self.without_cookie().post("/api/login", &login);
        assert_eq!(told.status, 200, "{}", told.text);
        let cookie = told.header("set-cookie").split(';').next().map(str::to_owned);
        Other {
            console: self,
            cookie,
        }
    }

    pub(crate) fn get(&self, path: &str) -> Told {
        self.send("GET", path, &[], "")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Told {
        self.send("POST", path, &SAME_ORIGIN, &body.to_string())
    }

    pub(crate) fn put(&self, path: &str, body: &Value) -> Told {
        self.send("PUT", path, &SAME_ORIGIN, &body.to_string())
    }

    pub(crate) fn delete(&self, path: &str) -> Told {
        self.send("DELETE", path, &SAME_ORIGIN, "")
    }

    /// Sends a request as a browser does, with the present cookie.
    pub(crate) fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Told {
        let cookie = self.cookie.lock().clone();
        let told = self.send_as(cookie.as_deref(), method, path, headers, body);
        if let Some(cookie) = told
            .header("set-cookie")
            .split(';')
            .next()
            .filter(|cookie| !cookie.is_empty())
        {
            *self.cookie.lock() = Some(cookie.to_owned());
        }
        told
    }

    fn send_as(
        &self,
        cookie: Option<&str>,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Told {
        let mut all = headers.to_vec();
        all.extend(cookie.map(|cookie| ("cookie", cookie)));
        let client = Client::build(&self.origin, self.ca.as_deref(), Duration::from_secs(60)).unwrap();
        let answer = client.send(method, path, &all, body.as_bytes()).unwrap();
        let names = [
            "set-cookie",
            "location",
            "content-type",
            "content-encoding",
            "content-security-policy",
            "x-content-type-options",
            "cache-control",
            "etag",
        ];
        let header = |name: &&str| Some(((*name).to_owned(), answer.header(name)?.to_owned()));
        Told {
            status: answer.status,
            headers: names.iter().filter_map(header).collect(),
            json: answer.json().unwrap_or_default(),
            text: answer.text(),
        }
    }

    /// Ends the process as an operator does, and waits until it has ended.
    pub(crate) fn terminate(&mut self) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").arg(&pid).status().unwrap().success());
        assert!(self.process.wait().unwrap().success());
    }

    /// Returns the registered clusters.
    pub(crate) fn clusters(&self) -> Vec<Value> {
        self.get("/api/registry").json["clusters"]
            .as_array()
            .unwrap()
            .clone()
    }

    /// Registers a cluster, and returns its id.
    pub(crate) fn register(&self, entry: Value) -> String {
        let made = self.post("/api/clusters", &entry);
        made.json["id"]
            .as_str()
            .unwrap_or_else(|| panic!("{}", made.text))
            .to_owned()
    }

    /// Makes a call as the dev tools do.
    pub(crate) fn call(&self, id: &str, method: &str, path: &str, body: Option<&str>) -> Told {
        let call = json!({"method": method, "path": path, "body": body});
        self.post(&format!("/api/clusters/{id}/call"), &call)
    }

    /// Waits until a row of the overview meets the condition.
    pub(crate) fn wait_for_row(&self, name: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            let overview = self.get("/api/overview").json;
            let rows = overview["rows"].as_array().cloned().unwrap_or_default();
            let row = rows.into_iter().find(|row| row["name"] == name);
            if let Some(row) = row.as_ref().filter(|row| holds(row)) {
                return row.clone();
            }
            assert!(
                began.elapsed() < Duration::from_secs(60),
                "not so after 60 s: {row:#?}\n{}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Returns the first events of a stream.
    pub(crate) fn events(&self, count: usize) -> Vec<Value> {
        let cookie = self.cookie.lock().clone().unwrap();
        let mut events = Vec::new();
        self.events_as(&cookie, count, |event| events.push(event.clone()));
        events
    }

    fn events_as(&self, cookie: &str, count: usize, mut seen: impl FnMut(&Value)) {
        use std::io::Write as _;
        let mut stream = std::net::TcpStream::connect(self.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        write!(
            stream,
            "GET /api/live HTTP/1.1\r\nHost: {}\r\nCookie: {cookie}\r\n\r\n",
            self.address()
        )
        .unwrap();
        let (mut text, mut buffer, mut told) = (String::new(), [0; 4096], 0);
        while told < count {
            let read = stream.read(&mut buffer).unwrap();
            assert!(read > 0, "the stream ended: {text}");
            text.push_str(&String::from_utf8_lossy(&buffer[..read]));
            while let Some((event, rest)) = text.split_once("\n\n") {
                if let Some((_, data)) = event.split_once("data: ")
                    && told < count
                {
                    let data = data.split(['\r', '\n']).next().unwrap();
                    seen(&serde_json::from_str(data).unwrap_or_else(|_| panic!("{data}")));
                    told += 1;
                }
                text = rest.to_owned();
            }
        }
    }

    /// Begins a call, and gives it up a moment later.
    pub(crate) fn give_up_call(&self, id: &str, path: &str) {
        use std::io::Write as _;
        let body = json!({"method": "GET", "path": path}).to_string();
        let cookie = self.cookie.lock().clone().unwrap();
        let mut stream = std::net::TcpStream::connect(self.address()).unwrap();
        write!(
            stream,
            "POST /api/clusters/{id}/call HTTP/1.1\r\nHost: {}\r\nCookie: {cookie}\r\nSec-Fetch-Site: same-origin\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.address(),
            body.len()
        )
        .unwrap();
        std::thread::sleep(Duration::from_millis(500));
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

const SAME_ORIGIN: [(&str, &str); 2] = [
    ("content-type", "application/json"),
    ("sec-fetch-site", "same-origin"),
];

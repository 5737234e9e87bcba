//! Runs the commands of the pages' blocks, as they are written but for addresses, folders and placeholders,
//! before a gateway with a queue. `docs_commands.txt` lists the commands that another test runs, those that
//! are only parsed, and those that are not tried; every other command has to succeed here.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;
use testkit::client::Client;
use testkit::fake::{Behaviour, FakeCluster, Spec, Unfit};

use crate::docs::{Block, arguments, blocks, root};
use crate::gateway::{Gateway, body, program};
use crate::home::{GatewayHome, wait};

/// What lines of a block begin with, if they are commands. A line that begins with none of these is output,
/// or a part of a file.
const PROGRAMS: [&str; 22] = [
    "tidegate",
    "./dev",
    "apt",
    "apt-get",
    "cargo",
    "cat",
    "curl",
    "df",
    "dmesg",
    "docker",
    "du",
    "echo",
    "go",
    "helm",
    "install",
    "journalctl",
    "node",
    "openssl",
    "rsync",
    "set",
    "ss",
    "systemctl",
];

/// Why a command is not run here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Instead {
    /// The test of this name runs it.
    Elsewhere,
    /// `tidegate` or `./dev` accepts its words.
    Parsed,
    NotTried,
}

/// How many commands are only parsed, and how many are not tried. Both may only shrink.
const LEFT: (usize, usize) = (30, 17);

/// A line of `docs_commands.txt`: `elsewhere TEST | COMMAND`, `parsed WHY | COMMAND` or `not-tried WHY |
/// COMMAND`. A command that ends with `*` stands for all that begin like it.
struct Listed {
    instead: Instead,
    why: &'static str,
    command: &'static str,
}

impl Listed {
    fn is(&self, command: &str) -> bool {
        match self.command.strip_suffix('*') {
            Some(begin) => command.starts_with(begin),
            None => command == self.command,
        }
    }
}

fn listed() -> Vec<Listed> {
    let lines = include_str!("docs_commands.txt").lines();
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let read = |line: &'static str| {
        let (how, command) = line.split_once(" | ").unwrap_or_else(|| panic!("{line}"));
        let (how, why) = how.split_once(' ').unwrap_or_else(|| panic!("{line}"));
        let instead = match how {
            "elsewhere" => Instead::Elsewhere,
            "parsed" => Instead::Parsed,
            "not-tried" => Instead::NotTried,
            _ => panic!("{line}"),
        };
        Listed {
            instead,
            why,
            command,
        }
    };
    lines.map(read).collect()
}

/// Returns the command of a line without its explanation, or `None` if the line is not one.
fn command(line: &str) -> Option<String> {
    let line = line.trim().trim_start_matches("$ ");
    // The explanation of a command comes after several spaces, or after a `#`.
    let line = line.split("  ").next()?.split(" #").next()?.trim();
    let is_variable = |word: &&str| word.split_once('=').is_some_and(|(name, _)| is_name(name));
    let first = line.split(' ').find(|word| !is_variable(word))?;
    let first = first.trim_start_matches("target/release/");
    PROGRAMS.contains(&first).then(|| line.to_owned())
}

fn is_name(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
}

/// Returns the commands of each block, with the block's place.
fn commands() -> Vec<(String, Vec<String>)> {
    let of = |block: &Block| {
        let (mut lines, mut goes_on) = (Vec::<String>::new(), false);
        for line in block.text.lines() {
            let part = line.trim().trim_end_matches('\\').trim_end();
            match lines.last_mut().filter(|_| goes_on) {
                Some(last) => *last += &format!(" {part}"),
                None => lines.push(part.to_owned()),
            }
            goes_on = line.ends_with('\\');
        }
        lines.iter().filter_map(|line| command(line)).collect::<Vec<_>>()
    };
    let all = blocks();
    let all = all
        .iter()
        .map(|block| (format!("{}:{}", block.page, block.line), of(block)));
    all.filter(|(_, commands)| !commands.is_empty()).collect()
}

/// A machine on which the pages' commands are typed: a gateway before a cluster, and the data of another
/// gateway, which is stopped.
struct Machine {
    cluster: FakeCluster,
    secured: FakeCluster,
    place: GatewayHome,
    gateway: Gateway,
    stopped: GatewayHome,
}

const REFUSED: &str = r#"{"type":"cluster_block_exception","reason":"index [blocked] blocked by: [FORBIDDEN/8/index write (api)];"}"#;
const UNFIT: &str = r#"{"type":"mapper_parsing_exception","reason":"failed to parse field [n]"}"#;

impl Machine {
    fn new() -> Self {
        let spec = || {
            Spec::default()
                .index("logs", 6)
                .index("loadgen", 6)
                .index("blocked", 6)
                .storing()
        };
        let cluster = FakeCluster::start(spec()).unwrap();
        let unfit = Unfit {
            holds: "unfit".to_owned(),
            status: 400,
            error: UNFIT.to_owned(),
        };
        cluster.set_behaviour(Behaviour {
            unfit: Some(unfit),
            ..Behaviour::default()
        });
        cluster.refuse_writes("blocked", Some((403, REFUSED)));
        let secured = FakeCluster::start(spec().tls().basic_auth("gateway", "secret")).unwrap();
        let stopped = GatewayHome::before(&[&cluster], "");
        let mut gateway = stopped.start();
        gateway.bulk(&body(40)).ok().unwrap();
        gateway.signal("TERM");
        assert!(gateway.wait().success(), "{}", gateway.log());
        let place = GatewayHome::before(&[&cluster], "");
        let gateway = place.start();
        let machine = Self {
            cluster,
            secured,
            place,
            gateway,
            stopped,
        };
        machine.furnish();
        machine
    }

    /// Makes the files and programs that the pages name.
    fn furnish(&self) {
        let path = |name: &str| self.place.folder().join(name);
        for folder in ["bin", "etc", "man1", "backups"] {
            std::fs::create_dir(path(folder)).unwrap();
        }
        std::os::unix::fs::symlink(program(), path("bin/tidegate")).unwrap();
        std::fs::write(path("source.json"), "{\"n\": 1}\n").unwrap();
        std::fs::write(path("es.pem"), self.secured.ca_pem().unwrap()).unwrap();
        let load = std::fs::read_to_string(root().join("examples/loadgen/bulk.yml")).unwrap();
        std::fs::write(path("load.yml"), load).unwrap();
        std::fs::copy(&self.place.file, path("gateway.yml")).unwrap();
    }

    fn post(&self, path: &str) {
        self.gateway
            .admin()
            .send("POST", path, &[], &[])
            .unwrap()
            .ok()
            .unwrap();
    }

    /// Sends a document that the cluster refuses, and waits for its letter. Returns the letter's id.
    fn letter(&self) -> String {
        let unfit = "{\"index\":{\"_index\":\"logs\",\"_id\":\"unfit\"}}\n{\"n\":\"unfit\"}\n";
        self.gateway.bulk(unfit).ok().unwrap();
        wait(&self.gateway, "c0", |one| {
            one["dead"].as_u64() > Some(0) && one["pending"] == 0
        });
        let listed = self
            .gateway
            .admin()
            .get("/dead_letters?limit=1")
            .unwrap()
            .json()
            .unwrap();
        match &listed["dead_letters"][0]["id"] {
            Value::String(id) => id.clone(),
            other => other.to_string(),
        }
    }

    /// Sends a document for an index that takes no writes, and waits until it is parked. Returns its key.
    fn parked(&self) -> String {
        let blocked = "{\"index\":{\"_index\":\"blocked\",\"_id\":\"b\"}}\n{\"n\":1}\n";
        self.gateway.bulk(blocked).ok().unwrap();
        wait(&self.gateway, "c0", |one| {
            one["parked"].as_u64() > Some(0) && one["pending"] == 0
        });
        "index:blocked".to_owned()
    }

    /// Sends a request, and returns its position in the queue.
    fn position(&self) -> String {
        let answer = self.gateway.bulk(&body(3)).ok().unwrap();
        let told = answer.header("x-tidegate-ack").unwrap().to_owned();
        told.rsplit("position=").next().unwrap().to_owned()
    }

    /// Writes two documents of one id, of which one has a routing, and waits until the cluster has them.
    fn two_of_one_id(&self) {
        let with =
            |more: &str| format!("{{\"index\":{{\"_index\":\"logs\",\"_id\":\"1\"{more}}}}}\n{{\"n\":1}}\n");
        self.gateway
            .bulk(&(with("") + &with(",\"routing\":\"r\"")))
            .ok()
            .unwrap();
        wait(&self.gateway, "c0", |one| one["pending"] == 0);
    }

    /// Brings about what a command is for, and returns what its placeholders stand for.
    fn prepare(&self, words: &[String]) -> Vec<(&'static str, String)> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let folder = |name: &str| self.place.folder().join(name).display().to_string();
        let stopped = self.stopped.file.display().to_string();
        let mut known = match words.as_slice() {
            ["dead-letters", ..] => vec![("ID", self.letter()), ("INDEX", "logs".to_owned())],
            ["queues", "parked", ..] => vec![("KEY", self.parked())],
            ["queues", "offset", _, _, "--to", ..] => {
                self.post("/pipeline/p0/_stop");
                Vec::new()
            }
            ["queues", "export", ..] => {
                vec![("FILE", stopped), ("FOLDER", folder("backups/q"))]
            }
            ["queues", "import", ..] => {
                let other = GatewayHome::before(&[&self.cluster], "");
                let file = folder("imported.yml");
                let text = std::fs::read_to_string(&other.file).unwrap();
                let data = other.data().display().to_string();
                std::fs::write(&file, text.replace(&data, &folder("imported"))).unwrap();
                vec![("FILE", file), ("FOLDER", folder("backups/q"))]
            }
            ["log", ..] => vec![(
                "FOLDER",
                self.stopped.data().join("queue/q").display().to_string(),
            )],
            ["pipelines", ..] => vec![("NAME", "p0".to_owned())],
            ["trace", "--queue", ..] => vec![("POSITION", self.position())],
            ["trace", ..] => {
                self.two_of_one_id();
                vec![("INDEX", "logs".to_owned()), ("ID", "1".to_owned())]
            }
            _ => Vec::new(),
        };
        known.extend([
            ("QUEUE", "q".to_owned()),
            ("NAME", "q".to_owned()),
            ("GROUP", "c0".to_owned()),
            ("POSITION", "0".to_owned()),
            ("ROUTING", "r".to_owned()),
            ("FILE", folder("source.json")),
        ]);
        known
    }

    /// Returns the command for this machine: with its addresses and folders, and for the placeholders what
    /// they stand for.
    fn ours(&self, command: &str, known: &[(&str, String)]) -> String {
        let folder = self.place.folder().display().to_string();
        let url = &self.cluster.urls()[0];
        let mut line = command.to_owned();
        for (theirs, ours) in [
            ("https://es1:9200", self.secured.urls()[0].clone()),
            ("http://127.0.0.1:9200", url.clone()),
            ("http://localhost:9200", url.clone()),
            (
                "http://127.0.0.1:8000",
                format!("http://{}", self.gateway.address),
            ),
            (
                "/etc/tidegate/tidegate.yml",
                self.place.file.display().to_string(),
            ),
            ("/etc/tidegate/tls.crt", format!("{folder}/es.pem")),
            ("/etc/tidegate/es.pem", format!("{folder}/es.pem")),
            ("/etc/tidegate/environment", format!("{folder}/environment")),
            (
                "/var/lib/tidegate/data/queue/QUEUE",
                format!("{folder}/data/queue/q"),
            ),
            ("/var/lib/tidegate", folder.clone()),
            ("/usr/local/share/man/man1", format!("{folder}/man1")),
            ("/etc/bash_completion.d", format!("{folder}/etc")),
            ("/usr/local/share/zsh/site-functions", format!("{folder}/etc")),
            ("/etc/fish/completions", format!("{folder}/etc")),
        ] {
            line = line.replace(theirs, &ours);
        }
        let word = |word: &str| {
            let found = known.iter().find(|(name, _)| *name == word);
            found.map_or(word.to_owned(), |(_, value)| value.clone())
        };
        let words: Vec<String> = line.split(' ').map(word).collect();
        words.join(" ")
    }

    /// Runs a command as the shell does, with the answers of whoever types it.
    fn run(&self, command: &str) -> Output {
        // Longer loads prove nothing more.
        let short = command
            .replace(" -d 60", " -d 1")
            .replace(" -d 10", " -d 1")
            .replace(" -l 1000", " -l 4");
        let line = short.trim_end_matches(" &");
        let words = arguments(line).unwrap_or_default();
        let asks = [
            "--to",
            "remove-group",
            "replay",
            "purge",
            "edit",
            "--give-up",
            "--release",
        ];
        let mut ours = self.ours(line, &self.prepare(&words));
        let is_asked = match words.first().map(String::as_str) {
            Some("queues" | "dead-letters") => words.iter().any(|word| asks.contains(&word.as_str())),
            _ => false,
        };
        if is_asked && takes_yes(&words) {
            ours += " --yes";
        }
        if words.first().is_some_and(|verb| verb == "init") {
            ours += " --listen 127.0.0.1:0 --admin 127.0.0.1:0 --output init.yml";
        }
        let path = std::env::var("PATH").unwrap_or_default();
        let bin = self.place.folder().join("bin");
        let mut shell = Command::new("bash");
        shell.args(["-e", "-o", "pipefail", "-c", &ours]);
        shell
            .current_dir(self.folder_for(line))
            .env("PATH", format!("{}:{path}", bin.display()))
            .env("TIDEGATE_ADMIN", format!("http://{}", self.gateway.admin))
            .env("TIDEGATE_PASSWORD", "secret")
            .env("ES_ENDPOINT", &self.cluster.urls()[0])
            .stdin(std::process::Stdio::null());
        shell.output().unwrap()
    }

    /// Examples are named from the folder of the sources.
    fn folder_for(&self, line: &str) -> PathBuf {
        match line.contains("examples/") {
            true => root(),
            false => self.place.folder().to_owned(),
        }
    }
}

fn takes_yes(words: &[String]) -> bool {
    let mut help = Command::new(program());
    help.args(words.iter().take(2)).arg("--help");
    String::from_utf8_lossy(&help.output().unwrap().stdout).contains("--yes")
}

/// Returns what is wrong with a command that was run: it failed, or printed nothing although it does nothing
/// else.
fn wrong(output: &Output, command: &str) -> Option<String> {
    let told = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned();
    let is_silent = ["> ", "--to ", "install ", "set ", "ss ", "--from 1200"]
        .iter()
        .any(|part| command.contains(part));
    if output.status.success() && (is_silent || !told.trim().is_empty()) {
        return None;
    }
    Some(format!("{command}: {}: {told}", output.status))
}

/// Returns all tests' sources, to find tests by name.
fn sources() -> String {
    let mut text = String::new();
    for folder in ["crates/cli/tests", "crates/xtask/tests"] {
        let mut open = vec![root().join(folder)];
        while let Some(path) = open.pop() {
            if path.is_dir() {
                open.extend(
                    std::fs::read_dir(path)
                        .unwrap()
                        .map(|entry| entry.unwrap().path()),
                );
            } else if path.extension().is_some_and(|end| end == "rs") {
                text += &std::fs::read_to_string(path).unwrap();
            }
        }
    }
    text
}

#[test]
#[allow(clippy::print_stdout, reason = "it says how much of the pages was tried")]
fn every_command_of_the_pages_is_run_or_listed_with_the_reason() {
    let (machine, list, sources) = (Machine::new(), listed(), sources());
    let (mut ran, mut elsewhere) = (0, 0);
    let (mut parsed, mut not_tried) = (BTreeSet::new(), BTreeSet::new());
    let (mut used, mut failed) = (BTreeSet::new(), Vec::new());
    for (place, commands) in commands() {
        for command in commands {
            let Some(one) = list.iter().find(|one| one.is(&command)) else {
                failed.extend(wrong(&machine.run(&command), &command).map(|why| format!("{place}: {why}")));
                ran += 1;
                continue;
            };
            used.insert(one.command);
            match one.instead {
                Instead::Elsewhere => {
                    let test = format!("fn {}(", one.why);
                    assert!(sources.contains(&test), "there is no test {}", one.why);
                    elsewhere += 1;
                }
                Instead::Parsed => drop(parsed.insert(command)),
                Instead::NotTried => drop(not_tried.insert(command)),
            }
        }
        machine.post("/pipeline/p0/_start");
    }
    let made = |folder: &str| {
        std::fs::read_dir(machine.place.folder().join(folder))
            .unwrap()
            .count()
    };
    assert!(
        made("etc") == 3 && made("man1") > 20,
        "{} and {}",
        made("etc"),
        made("man1")
    );
    println!(
        "of the pages' commands, {ran} were run here and {elsewhere} by other tests, {} were only parsed, and \
         {} were not tried",
        parsed.len(),
        not_tried.len()
    );
    assert!(
        failed.is_empty(),
        "{} failed:\n{}",
        failed.len(),
        failed.join("\n")
    );
    let unused: Vec<&str> = list
        .iter()
        .map(|one| one.command)
        .filter(|one| !used.contains(one))
        .collect();
    assert!(
        unused.is_empty(),
        "no page has {unused:?}: remove them from docs_commands.txt"
    );
    assert_eq!((parsed.len(), not_tried.len()), LEFT, "the lists may only shrink");
}

/// Returns a value with only its keys and the kinds of its values.
fn shape(value: &Value) -> Value {
    match value {
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| (key.clone(), shape(value)))
            .collect(),
        Value::Array(list) => list.first().map(shape).into_iter().collect(),
        Value::Number(_) => "number".into(),
        Value::String(_) => "text".into(),
        Value::Bool(_) => "boolean".into(),
        Value::Null => Value::Null,
    }
}

#[test]
fn what_the_pages_show_of_heat_and_of_parked_documents_is_what_a_gateway_says() {
    let (machine, all) = (Machine::new(), blocks());
    let find = |text: &str| {
        let found = all.iter().find(|block| block.text.contains(text));
        &found.unwrap_or_else(|| panic!("no page has `{text}`")).text
    };
    let ask = || machine.gateway.admin().get("/heat").unwrap().json().unwrap();
    // The first question begins the count.
    ask();
    machine.gateway.bulk(&body(30)).ok().unwrap();
    wait(&machine.gateway, "c0", |one| one["pending"] == 0);
    let page = find("/heat\n").split_once('\n').unwrap().1;
    let page: Value = serde_json::from_str(page).unwrap();
    let mut heat = ask();
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&heat), keys(&page));
    let ours = &mut heat["clusters"]["c0"];
    ours["indices"] = serde_json::json!({"logs": ours["indices"]["logs"]});
    assert_eq!(shape(ours), shape(&page["clusters"]["prod"]), "{ours:#}");

    machine.parked();
    machine.parked();
    let shown = find("q, c0: ")
        .lines()
        .find(|line| line.contains("parked: "))
        .unwrap();
    let shown = shown.trim_end_matches('…');
    let listed = machine.run("tidegate queues list");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let without_numbers = |text: &str| text.replace(|byte: char| byte.is_ascii_digit(), "");
    let is_like = |line: &str| without_numbers(line).starts_with(&without_numbers(shown));
    assert!(
        listed.lines().any(is_like),
        "no line like `{shown}` in:\n{listed}"
    );
}

/// Makes the two indices that the page on `diff` compares, and checks that the command prints the page's
/// table.
#[test]
fn what_the_page_shows_of_diff_is_what_it_prints() {
    let make = || FakeCluster::start(Spec::default().index("logs", 6).storing()).unwrap();
    let (left, right) = (make(), make());
    let write = |cluster: &FakeCluster, ids: std::ops::RangeInclusive<u32>, tag: u32| {
        let line = |id| {
            let second = if id == 77 { tag } else { 9 };
            format!("{{\"index\":{{\"_id\":\"{id}\"}}}}\n{{\"tags\":[1,{second}]}}\n")
        };
        let text: String = ids.map(line).collect();
        let client = Client::new(&cluster.urls()[0]).unwrap();
        client
            .post_ndjson("/logs/_bulk", text.as_bytes())
            .unwrap()
            .ok()
            .unwrap();
    };
    write(&left, 0..=1999, 2);
    write(&right, 1..=1999, 3);
    write(&right, 2002..=2002, 3);
    let all = blocks();
    let mut page = all.iter().filter(|block| block.page == "docs/diff.md");
    let words = arguments(page.next().unwrap().text.trim()).unwrap();
    let places = [("http://primary:9200", &left), ("https://backup:9200", &right)];
    let ours = |text: &str| {
        places.iter().fold(text.to_owned(), |text, (name, cluster)| {
            text.replace(name, &cluster.urls()[0])
        })
    };
    let mut diff = Command::new(program());
    let output = diff.args(words.iter().map(|word| ours(word))).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines = |text: &str| -> Vec<Vec<String>> {
        let lines = text.lines().filter(|line| !line.is_empty());
        lines
            .map(|line| line.split_whitespace().map(str::to_owned).collect())
            .collect()
    };
    assert_eq!(lines(&told), lines(&ours(&page.next().unwrap().text)), "{told}");
}

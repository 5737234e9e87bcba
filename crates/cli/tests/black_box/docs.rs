//! Checks what the pages tell people to type and to write: `tidegate` accepts the commands, and
//! configurations pass `tidegate check`. A block that is neither is listed below with the reason, so that no
//! new block is overlooked.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use testkit::fake::{FakeCluster, Spec};

use crate::gateway::{Gateway, cluster};
use crate::home::GatewayHome;

/// A block of code of a page.
pub(crate) struct Block {
    pub(crate) page: String,
    pub(crate) line: usize,
    pub(crate) text: String,
}

/// The contents of a block of YAML.
enum Is {
    /// A configuration, once the block replaces `HERE` in this text.
    Config(&'static str),
    /// A load file, in the same way.
    Load(&'static str),
    /// Something that `tidegate` does not read.
    Else(&'static str),
}

/// The text around blocks that are a part of a file.
const AROUND_FLOW: &str = "\
entry: [{name: e, router: r, network.binding: '127.0.0.1:0'}]
router: [{name: r, default_flow: write}]
elasticsearch: [{name: prod, endpoint: 'http://127.0.0.1:9200'}]
HERE";
const AROUND_CLUSTER: &str = "\
entry: [{name: e, router: r, network.binding: '127.0.0.1:0'}]
router: [{name: r, default_flow: f}]
flow: [{name: f, filter: [{elasticsearch: {elasticsearch: prod}}]}]
HERE";
const AROUND_FILTER: &str = "\
entry: [{name: e, router: r, network.binding: '127.0.0.1:0'}]
router: [{name: r, default_flow: f}]
elasticsearch: [{name: prod, endpoint: 'http://127.0.0.1:9200'}]
flow:
  - name: f
    filter:
HERE
      - elasticsearch: {elasticsearch: prod}
";
const AROUND_KEYS: &str = "\
entry: [{name: e, router: r, network.binding: '127.0.0.1:0'}]
router: [{name: r, default_flow: f}]
elasticsearch: [{name: prod, endpoint: 'http://127.0.0.1:9200'}]
pipeline: [{name: p, processor: [{bulk_indexing: {elasticsearch: prod}}]}]
flow:
  - name: f
    filter:
      - bulk_reshuffle:
          elasticsearch: prod
HERE
";
const AROUND_LOGGING: &str = "\
entry: [{name: e, router: r, network.binding: '127.0.0.1:0'}]
router: [{name: r, default_flow: f}]
elasticsearch: [{name: prod, endpoint: 'http://127.0.0.1:9200'}]
flow: [{name: f, filter: [{elasticsearch: {elasticsearch: prod}}]}]
HERE";
const AROUND_REQUESTS: &str = "\
variables: [{name: index, type: list, data: [loadgen]}, {name: uuid, type: uuid}]
HERE
";
const AROUND_ASSERT: &str = "\
requests:
  - request: {method: GET, url: 'http://127.0.0.1:9200/'}
HERE
";
const AROUND_STATSD: &str = "\
requests: [{request: {method: GET, url: 'http://127.0.0.1:9200/'}}]
HERE
";

/// Blocks that look like YAML: page, first line, and contents.
const BLOCKS: &[(&str, &str, Is)] = &[
    ("docs/combine.md", "flow:", Is::Config(AROUND_FLOW)),
    ("docs/combine.md", "- bulk_reshuffle:", Is::Config(AROUND_FILTER)),
    (
        "docs/console.md",
        "clusters:",
        Is::Else("a registry: console::the_registry_of_the_page_can_be_imported has it"),
    ),
    (
        "docs/console.md",
        "issuer: https://login.example.com/realms/ops",
        Is::Else("the console reads it: its own test takes it from the page"),
    ),
    ("docs/directed.md", "flow:", Is::Config(AROUND_FLOW)),
    (
        "docs/async.md",
        "bulk_reshuffle:",
        Is::Else("the second line alone is in a file as it stands here: keys_of_a_filter has it"),
    ),
    ("docs/kafka.md", "queue:", Is::Config(AROUND_KEYS)),
    ("docs/shippers.md", "output.elasticsearch:", Is::Else("for Beats")),
    ("docs/shippers.md", "sinks:", Is::Else("for Vector")),
    (
        "docs/shippers.md",
        "exporters:",
        Is::Else("for the OpenTelemetry Collector"),
    ),
    ("docs/shippers.md", "elasticsearch:", Is::Config(AROUND_CLUSTER)),
    (
        "docs/logging.md",
        "logging.access: {enabled: true}",
        Is::Else("two ways to write one key: each_line_of_logging has both"),
    ),
    ("docs/tracing.md", "tracing:", Is::Config(AROUND_LOGGING)),
    ("docs/operate.md", "admin:", Is::Config(AROUND_LOGGING)),
    (
        "docs/health.md",
        "livenessProbe:  {httpGet: {path: /health/live, port: 2900}}",
        Is::Else("for Kubernetes"),
    ),
    ("docs/loadgen.md", "requests:", Is::Load(AROUND_REQUESTS)),
    ("docs/loadgen.md", "assert:", Is::Load(AROUND_ASSERT)),
    (
        "docs/loadgen.md",
        "statsd: {enabled: true, host: localhost, port: 8125, namespace: loadgen}",
        Is::Load(AROUND_STATSD),
    ),
    ("docs/metrics.md", "scrape_configs:", Is::Else("for Prometheus")),
    (
        "docs/operate.md",
        "q, c0: lanes 0,2,3 paused, before the cluster c0, for 12.4 s, next try in 17.6 s: 401 security_exception: …",
        Is::Else("what a command prints"),
    ),
];

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// README.md, docs/*.md and docs/runbooks/*.md.
pub(crate) fn pages() -> Vec<(String, String)> {
    let names = ["docs", "docs/runbooks"].into_iter().flat_map(|folder| {
        let files = std::fs::read_dir(root().join(folder)).unwrap();
        files.map(move |page| format!("{folder}/{}", page.unwrap().file_name().to_str().unwrap()))
    });
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".md")).collect();
    names.push("README.md".to_owned());
    names.sort();
    let read = |name: String| {
        let text = std::fs::read_to_string(root().join(&name)).unwrap();
        (name, text)
    };
    names.into_iter().map(read).collect()
}

/// Returns fenced and indented blocks.
pub(crate) fn blocks() -> Vec<Block> {
    let mut blocks = Vec::new();
    for (page, text) in pages() {
        let (mut fenced, mut blank, mut open) = (false, true, None::<Block>);
        for (at, line) in text.lines().enumerate() {
            let fence = line.trim_start().starts_with("```");
            let part = match fenced {
                true if !fence => Some(line),
                false if !fence && (blank || open.is_some()) => line.strip_prefix("    ").or(line
                    .trim()
                    .is_empty()
                    .then_some("")
                    .filter(|_| open.is_some())),
                _ => None,
            };
            blank = line.trim().is_empty();
            match part {
                Some(part) => {
                    let block = open.get_or_insert_with(|| Block {
                        page: page.clone(),
                        line: at + 1,
                        text: String::new(),
                    });
                    block.text += part;
                    block.text.push('\n');
                }
                None => blocks.extend(open.take()),
            }
            if fence {
                fenced = !fenced;
            }
        }
        blocks.extend(open);
    }
    blocks
}

/// Whether a line is `key:` or `- key:`, with which no command begins.
fn looks_like_yaml(line: &str) -> bool {
    let key = line
        .trim_start_matches("- ")
        .split(':')
        .next()
        .unwrap_or_default();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.".contains(&byte);
    line.contains(':') && !key.is_empty() && key.bytes().all(plain) || line.starts_with("q, ")
}

/// Returns the arguments of each command line with `tidegate` in a text.
fn command_lines(text: &str) -> Vec<Vec<String>> {
    let text = text.replace("\\\n", " ");
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let parts = lines.flat_map(|line| line.split("&&").flat_map(|part| part.split(" | ")));
    parts.filter_map(arguments).collect()
}

pub(crate) fn arguments(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut rest = line.trim();
    while !rest.is_empty() {
        let quote = rest.chars().next().filter(|first| ['\'', '"'].contains(first));
        let (word, after) = match quote {
            Some(quote) => rest[1..].split_once(quote)?,
            // The explanation of a command comes after several spaces, or after a `#`.
            None => match rest.split_once(' ') {
                Some((word, after)) if after.starts_with("  ") => (word, ""),
                Some((word, after)) => (word, after),
                None => (rest, ""),
            },
        };
        if ["#", "&", "<", ">", "…"].contains(&word) || word.starts_with('#') {
            break;
        }
        words.push(word.to_owned());
        rest = after.trim_start();
    }
    let is_variable = |word: &&String| {
        word.split_once('=')
            .is_some_and(|(name, _)| name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_'))
    };
    let variables = words.iter().take_while(is_variable).count();
    let program = words.get(variables)?;
    (program == "tidegate" || program == "target/release/tidegate").then(|| words[variables + 1..].to_vec())
}

fn tidegate(arguments: &[String]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(arguments)
        .current_dir(root())
        .output()
        .unwrap()
}

#[test]
fn every_command_of_the_pages_is_one_that_tidegate_takes() {
    let mut lines: Vec<(String, Vec<String>)> = Vec::new();
    for block in blocks() {
        let place = format!("{}:{}", block.page, block.line);
        lines.extend(
            command_lines(&block.text)
                .into_iter()
                .map(|line| (place.clone(), line)),
        );
    }
    for (page, text) in pages() {
        let spans = text.split('`').skip(1).step_by(2);
        let spans = spans.filter(|span| span.starts_with("tidegate ") && !span.contains('\n'));
        lines.extend(spans.filter_map(arguments).map(|line| (page.clone(), line)));
    }
    assert!(lines.len() > 50, "{} commands were found", lines.len());
    for (place, line) in lines {
        // With `--help` nothing is done, but everything before it is parsed as usual.
        let mut with_help: Vec<String> = line.iter().map(|word| number_for(word)).collect();
        if with_help.last().is_none_or(|last| last != "--help") {
            with_help.push("--help".to_owned());
        }
        let output = tidegate(&with_help);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{place}: tidegate {}: {complaint}",
            line.join(" ")
        );
    }
}

/// Returns a value for a word that stands for one, where the value is parsed.
fn number_for(word: &str) -> String {
    match word {
        "N" | "ID" | "POSITION" => "1".to_owned(),
        "ADDR" => "127.0.0.1:0".to_owned(),
        _ => word.to_owned(),
    }
}

#[test]
fn every_configuration_of_the_pages_can_be_used() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("page.yml");
    let mut looked_at = 0;
    for block in blocks() {
        let Some(first) = block.text.lines().find(|line| !line.trim().is_empty()) else {
            continue;
        };
        if !looks_like_yaml(first.trim()) {
            continue;
        }
        let known = BLOCKS
            .iter()
            .find(|(page, line, _)| *page == block.page && *line == first.trim());
        let Some((_, _, is)) = known else {
            panic!(
                "{}:{}: say in this test what `{}` is",
                block.page,
                block.line,
                first.trim()
            );
        };
        looked_at += 1;
        match is {
            Is::Else(why) => assert!(!why.is_empty()),
            Is::Config(around) => {
                check(&file, &around.replace("HERE", &indented(&block, around)), &block);
            }
            Is::Load(around) => load(&file, &around.replace("HERE", &indented(&block, around)), &block),
        }
    }
    assert!(
        looked_at >= BLOCKS.len(),
        "{looked_at} of {} were found",
        BLOCKS.len()
    );
}

/// Returns the block with the indentation that its place requires.
fn indented(block: &Block, around: &str) -> String {
    let room = match around {
        AROUND_KEYS => "          ",
        AROUND_ASSERT => "    ",
        _ => "",
    };
    block.text.lines().map(|line| format!("{room}{line}\n")).collect()
}

fn check(file: &Path, text: &str, block: &Block) {
    std::fs::write(file, text).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .arg("check")
        .arg(file)
        .env("KAFKA_PASSWORD", "secret")
        .env("TOKEN_PROMETHEUS", "one")
        .env("TOKEN_CONSOLE", "another")
        .output()
        .unwrap();
    let told: String = String::from_utf8_lossy(&output.stdout)
        .lines()
        // Files with people's own names do not exist here.
        .filter(|line| line.contains(": error: ") && !line.contains("/etc/tidegate/"))
        .collect();
    assert_eq!(told, "", "{}:{}:\n{text}", block.page, block.line);
}

/// Checks a load file, which is read before anything is sent; nothing listens at port 9.
fn load(file: &Path, text: &str, block: &Block) {
    std::fs::write(file, text).unwrap();
    let output = tidegate(&["loadgen", "-config", file.to_str().unwrap(), "-l", "1"].map(str::to_owned));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(
        !told.contains("page.yml:"),
        "{}:{}: {told}\n{text}",
        block.page,
        block.line
    );
}

#[test]
fn keys_of_a_filter_and_each_line_of_logging_can_be_used() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("page.yml");
    let blocks = blocks();
    let find = |page: &str, first: &str| {
        let found = blocks
            .iter()
            .find(|block| block.page == page && block.text.starts_with(first));
        found.unwrap_or_else(|| panic!("{page} has no `{first}`"))
    };
    let keys = find("docs/async.md", "bulk_reshuffle:");
    let line = keys.text.lines().nth(1).unwrap().trim();
    check(
        &file,
        &AROUND_KEYS.replace("HERE", &format!("          {line}")),
        keys,
    );
    let logging = find("docs/logging.md", "logging.access:");
    for line in logging.text.lines().filter(|line| !line.is_empty()) {
        check(&file, &AROUND_LOGGING.replace("HERE", line), logging);
    }
}

#[test]
fn the_first_steps_of_loadgen_work_as_they_are_written() {
    let cluster = FakeCluster::start(Spec::default().index("loadgen", 6).storing()).unwrap();
    let all = blocks();
    let block = all
        .iter()
        .find(|block| block.text.starts_with("cat > loadgen.yml"));
    let text = &block.unwrap().text;
    let (file, commands) = text.split_once("EOF'\n").unwrap().1.split_once("EOF\n").unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("loadgen.yml"), file).unwrap();
    let mut line = command_lines(commands).remove(0);
    // One second is enough.
    let seconds = line.iter().position(|word| word == "10").unwrap();
    line[seconds] = "1".to_owned();
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(&line)
        .env("ES_ENDPOINT", &cluster.urls()[0])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(cluster.docs("loadgen").len() >= 1_000);
}

/// Follows the page except for the package and systemd, which starts the same program with the same file.
#[test]
fn the_page_for_beginners_leads_to_documents_in_the_cluster() {
    let cluster = cluster();
    let all = blocks();
    let page: Vec<&Block> = all
        .iter()
        .filter(|block| block.page == "docs/getting-started.md")
        .collect();
    let lines: Vec<Vec<String>> = page.iter().flat_map(|block| command_lines(&block.text)).collect();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tidegate.yml");
    let [init, check, ..] = lines.as_slice() else {
        panic!("{lines:?}");
    };
    let run = |line: &[String]| {
        let ours = line.iter().map(|word| match word.as_str() {
            "http://127.0.0.1:9200" => cluster.urls()[0].clone(),
            "127.0.0.1:8000" => "127.0.0.1:0".to_owned(),
            "/etc/tidegate/tidegate.yml" => file.to_str().unwrap().to_owned(),
            "/var/lib/tidegate/data" => folder.path().join("data").to_str().unwrap().to_owned(),
            word => word.to_owned(),
        });
        let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(ours)
            .current_dir(folder.path())
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{line:?}: {told}");
    };
    assert_eq!((init[0].as_str(), check[0].as_str()), ("init", "check"));
    for line in [init, check] {
        run(line);
    }
    // The page's admin port is the default, which another test may be using.
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("127.0.0.1:2900", "127.0.0.1:0")).unwrap();
    let gateway = Gateway::start_in(folder.path(), &["--config", file.to_str().unwrap()], &[]);
    let asked: Vec<&str> = page
        .iter()
        .flat_map(|block| block.text.lines())
        .filter(|line| line.starts_with("curl "))
        .collect();
    assert_eq!(asked.len(), 3, "{asked:?}");
    let ask = |line: &str| {
        let ours = line.replace("127.0.0.1:8000", &gateway.address.to_string());
        let output = Command::new("bash").args(["-c", &ours]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(ask(asked[0]).contains("\"errors\":false"));
    let began = std::time::Instant::now();
    while cluster.docs("logs").is_empty() {
        assert!(began.elapsed().as_secs() < 60, "it is not delivered");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    ask(asked[1]);
    assert!(ask(asked[2]).contains("\"count\":1"), "{}", ask(asked[2]));
    for mut line in lines[2..4].iter().cloned() {
        line.extend(["--admin".to_owned(), format!("http://{}", gateway.admin)]);
        run(&line);
    }
}

#[test]
fn what_the_pages_ask_a_running_gateway_is_answered() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    let admin = format!("http://{}", gateway.admin);
    let mut asked = 0;
    for block in blocks().iter().filter(|block| block.page.starts_with("docs/")) {
        for line in command_lines(&block.text) {
            let words: Vec<&str> = line.iter().map(String::as_str).collect();
            let (["queues", "list" | "show" | "browse", ..]
            | ["queues", "parked", "QUEUE"]
            | ["pipelines", ..]
            | ["dead-letters", "list", ..]
            | ["switch", ..]) = words.as_slice()
            else {
                continue;
            };
            // Queues in Kafka have any number of lanes; this one has four, and positions of its own.
            if words.contains(&"--lane") {
                continue;
            }
            let named = words.iter().map(|word| match (*word, words[0]) {
                ("QUEUE", _) | ("NAME", "queues") => "q",
                ("NAME", _) => "p0",
                ("POSITION", _) => "0",
                (other, _) => other,
            });
            let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
                .args(named)
                .args(["--admin", &admin])
                .output()
                .unwrap();
            let told = String::from_utf8_lossy(&output.stderr);
            assert_eq!(
                output.status.code(),
                Some(0),
                "{}:{}: {words:?}: {told}",
                block.page,
                block.line
            );
            asked += 1;
        }
    }
    assert!(asked >= 10, "{asked} commands were found");
}

/// Runs each line of the pages that calls `curl`, unchanged except for the ports. A gateway listens at the
/// port for clients, and its admin port has a queue.
#[test]
fn what_the_pages_have_curl_ask_is_answered() {
    let cluster = cluster();
    let place = GatewayHome::before(&[&cluster], "");
    let gateway = place.start();
    let mut asked = 0;
    for block in blocks() {
        let lines = block.text.replace("\\\n", " ");
        for line in lines
            .lines()
            .map(str::trim)
            .filter(|line| line.starts_with("curl "))
        {
            let ours = line
                .replace("localhost:2900", &gateway.admin.to_string())
                .replace("127.0.0.1:2900", &gateway.admin.to_string())
                .replace("127.0.0.1:8000", &gateway.address.to_string())
                .replace("localhost:8000", &gateway.address.to_string());
            assert_ne!(
                ours, line,
                "{}:{}: nobody of this test is asked",
                block.page, block.line
            );
            // Any status but a successful one is a failure.
            let script =
                format!("curl() {{ command curl -sS --fail-with-body --max-time 20 \"$@\"; }}; {ours}");
            let output = Command::new("bash").args(["-c", &script]).output().unwrap();
            let told = String::from_utf8_lossy(&output.stdout);
            assert!(
                output.status.success() && !told.is_empty(),
                "{}:{}: {line}: {told}{}",
                block.page,
                block.line,
                String::from_utf8_lossy(&output.stderr)
            );
            // The items of an accepted bulk say so.
            assert!(
                !told.contains("\"errors\":true"),
                "{}:{}: {told}",
                block.page,
                block.line
            );
            asked += 1;
        }
    }
    assert!(asked >= 4, "{asked} lines were found");
}

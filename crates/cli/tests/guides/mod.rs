//! The configuration and load files of published guides, word for word. A test may replace only hosts and
//! ports: `run` lists what it replaces.

#![allow(dead_code, reason = "each test target uses some of it")]

use std::path::{Path, PathBuf};

/// A gateway in asynchronous mode (the default) before three nodes with TLS and an account.
pub(crate) const GATEWAY: &str = include_str!("gateway.yml");

/// Load through a gateway and around it; each action has `"_type":"_doc"`.
pub(crate) const WALK: &str = include_str!("walk-loadgen.yml");
pub(crate) const WALK_DIRECT: [&str; 2] = [
    include_str!("walk-loadgen2-first.yml"),
    include_str!("walk-loadgen2-second.yml"),
];

/// The first steps of a page about loadgen: whole files, and sections that replace the first file's
/// `requests`.
pub(crate) const SEARCH: &str = include_str!("bench-search.yml");
pub(crate) const SEARCH_BY_NAME: &str = include_str!("bench-search-by-name.yml");
pub(crate) const LIMIT: &str = include_str!("bench-limit.yml");
pub(crate) const SEQUENCE: &str = include_str!("bench-sequence.yml");
/// One more request for the first file's list; its actions have a type of the user's own.
pub(crate) const BULK: &str = include_str!("bench-bulk.yml");
/// Documents with routing, and a type of the user's own.
pub(crate) const ROUTING: &str = include_str!("bench-routing.yml");

/// A log line as on the walk-through's page, with its quotes escaped already.
pub(crate) const LOG_LINE: &str = r#"175.10.75.216 - - [28/Jul/2020:21:20:26 +0800] \"GET / HTTP/1.1\" 200 8676 \"-\" \"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_6) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/84.0.4147.89 Safari/537.36\"
"#;

/// Returns a body as people have it in their file. The walk-through's page escapes the surrounding quotes and
/// the line breaks once more than YAML does, which no YAML reader accepts.
pub(crate) fn as_written(page: &str) -> String {
    let line = |line: &str| match line.split_once("body: \\\"") {
        Some((before, text)) if text.ends_with("\\\"") => {
            let text = text[..text.len() - 2].replace("\\\\n", "\\n");
            format!("{before}body: \"{text}\"\n")
        }
        _ => format!("{line}\n"),
    };
    page.lines().map(line).collect()
}

/// Returns `file` with the requests of `section` in place of its own, as the page tells its readers to do.
pub(crate) fn with_requests(file: &str, section: &str) -> String {
    let (variables, _) = file.split_once("requests:\n").expect("the file has requests");
    format!("{variables}{section}")
}

/// Makes a folder with the dictionaries that the load files name, in both of the places where they look.
pub(crate) fn folder() -> std::io::Result<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    for place in ["dict", "test"] {
        let place: PathBuf = folder.path().join(place);
        std::fs::create_dir(&place)?;
        std::fs::write(place.join("ip.txt"), "192.168.0.1\n192.168.0.2\n")?;
        std::fs::write(place.join("user.txt"), "medcl\nelastic\n")?;
    }
    std::fs::write(folder.path().join("nginx.log"), LOG_LINE)?;
    Ok(folder)
}

/// Runs `tidegate loadgen` with `file` in `folder`. `places` are the file's hosts and ports, with the test's
/// replacements.
pub(crate) fn run(
    folder: &Path,
    file: &str,
    places: &[(&str, &str)],
    arguments: &[&str],
) -> std::io::Result<std::process::Output> {
    let mut text = file.to_owned();
    for (guides, tests) in places {
        assert!(text.contains(guides), "the file does not name {guides}");
        text = text.replace(guides, tests);
    }
    std::fs::write(folder.join("loadgen.yml"), text)?;
    std::process::Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["loadgen", "--json"])
        .args(arguments)
        .current_dir(folder)
        .output()
}

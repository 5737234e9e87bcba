//! `./dev bench --loadgen`: measures what making load costs, with other load generators in the same run.
//!
//! A generator runs on the first core, `tidegate sink` on the second. The generators take turns; figures are
//! medians over the rounds, with their extremes. CPU time is the generator's own, user and system, in
//! hundredths of a second, as the kernel accounts for children, so rounds should last some seconds.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::machine;
use crate::gateway::Build;

/// The generator's core, and the fake cluster's.
const CORES: [&str; 2] = ["0", "1"];
/// Number of documents in the body of a bulk, as in the guides.
const LINES: usize = 5_000;
/// Number of connections for small requests, and for bulks.
const CONNECTIONS: [&str; 2] = ["16", "2"];

/// A load generator.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Generator {
    Tidegate,
    Wrk,
    Hey,
}

/// The kind of requests that are sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Case {
    /// `GET /`.
    SmallGets,
    /// Bulks of 5,000 documents.
    Bulks,
}

/// One turn of one generator.
struct Round {
    requests_per_s: f64,
    requests_per_cpu_s: f64,
}

/// Measures and prints the table.
pub(super) fn run(rounds: usize, seconds: u64) -> Result<()> {
    let before = machine::load_average();
    let folder = std::env::temp_dir().join(format!("tidegate-generators-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let sink = Sink::start()?;
    let mut table = String::from(
        "| | requests/s | of wrk's | requests per CPU second | of wrk's |\n|---|---|---|---|---|\n",
    );
    for case in [Case::SmallGets, Case::Bulks] {
        let body = write_files(&folder, &sink.url)?;
        let generators: Vec<Generator> = Generator::ALL.into_iter().filter(|one| one.is_there()).collect();
        let mut turns: Vec<Vec<Round>> = generators.iter().map(|_| Vec::new()).collect();
        let mut sink_s = Vec::new();
        for round in 0..rounds {
            for at in 0..generators.len() {
                // Each round begins with another generator.
                let at = (at + round) % generators.len();
                let before = machine::process_cpu_seconds(sink.process.id())?;
                let turn = generators[at].measure(case, &sink.url, &folder, &body, seconds)?;
                if generators[at] == Generator::Tidegate {
                    let used = sink.cpu_seconds(before)?;
                    sink_s.push(turn.requests_per_s * seconds as f64 / used.max(0.01));
                }
                turns[at].push(turn);
            }
        }
        let of_wrk = generators.iter().position(|one| *one == Generator::Wrk);
        for (at, generator) in generators.iter().enumerate() {
            let wrk = of_wrk.map(|wrk| turns[wrk].as_slice());
            table += &row(*generator, case, &turns[at], wrk);
        }
        let what = ["small GETs, the sink itself", "bulks of 5,000, the sink itself"];
        table += &format!(
            "| {} | | | {}{} | |\n",
            what[usize::from(case == Case::Bulks)],
            spread(&sink_s),
            case.documents(&sink_s)
        );
    }
    std::fs::remove_dir_all(&folder)?;
    let machine = format!(
        "{}; generator on core {}, sink on core {}; {rounds} rounds of {seconds} s; load average {before} before, {} after",
        machine::processor(),
        CORES[0],
        CORES[1],
        machine::load_average()
    );
    super::say(&format!("{table}\n{machine}"));
    Ok(())
}

fn row(generator: Generator, case: Case, turns: &[Round], wrk: Option<&[Round]>) -> String {
    let wall: Vec<f64> = turns.iter().map(|turn| turn.requests_per_s).collect();
    let cpu: Vec<f64> = turns.iter().map(|turn| turn.requests_per_cpu_s).collect();
    let share = |own: &[f64], of: &dyn Fn(&Round) -> f64| {
        wrk.map_or("–".to_owned(), |turns| {
            let others: Vec<f64> = turns.iter().map(of).collect();
            format!("{:.2}", median(own) / median(&others))
        })
    };
    format!(
        "| {} | {}{} | {} | {}{} | {} |\n",
        generator.about(case),
        spread(&wall),
        case.documents(&wall),
        share(&wall, &|turn| turn.requests_per_s),
        spread(&cpu),
        case.documents(&cpu),
        share(&cpu, &|turn| turn.requests_per_cpu_s),
    )
}

// === impl Case ===

impl Case {
    /// Converts counts of requests to documents.
    fn documents(self, values: &[f64]) -> String {
        match self {
            Case::SmallGets => String::new(),
            Case::Bulks => format!(" = {:.2} M documents", median(values) * LINES as f64 / 1e6),
        }
    }
}

// === impl Generator ===

impl Generator {
    const ALL: [Generator; 3] = [Generator::Tidegate, Generator::Wrk, Generator::Hey];

    fn about(self, case: Case) -> &'static str {
        match (self, case) {
            (Generator::Tidegate, Case::SmallGets) => "small GETs, tidegate loadgen",
            (Generator::Wrk, Case::SmallGets) => "small GETs, wrk",
            (Generator::Hey, Case::SmallGets) => "small GETs, hey",
            (Generator::Tidegate, Case::Bulks) => {
                "bulks of 5,000, tidegate loadgen: each document rendered, each item looked at"
            }
            (Generator::Wrk, Case::Bulks) => {
                "bulks of 5,000, wrk: one body again and again, no item looked at"
            }
            (Generator::Hey, Case::Bulks) => {
                "bulks of 5,000, hey: one body again and again, no item looked at"
            }
        }
    }

    /// Whether the generator can be run; prints how to get it if not.
    fn is_there(self) -> bool {
        let (program, how) = match self {
            Generator::Tidegate => return true,
            Generator::Wrk => ("wrk", "apt-get install wrk"),
            Generator::Hey => ("hey", "go install github.com/rakyll/hey@latest"),
        };
        let there = find(program).is_some();
        if !there {
            eprintln!("{program} is not installed ({how}): its rows are left out");
        }
        there
    }

    fn measure(self, case: Case, url: &str, folder: &Path, body: &Path, seconds: u64) -> Result<Round> {
        let connections = CONNECTIONS[usize::from(case == Case::Bulks)];
        let time = seconds.to_string();
        let mut command = Command::new("taskset");
        command.args(["-c", CORES[0]]);
        let bulk_url = format!("{url}/_bulk");
        match (self, case) {
            (Generator::Tidegate, _) => {
                let file = match case {
                    Case::SmallGets => folder.join("gets.yml"),
                    Case::Bulks => crate::root().join("examples/loadgen/bulk.yml"),
                };
                command.arg(Build::Release.program());
                command.arg("loadgen").arg("-config").arg(file);
                command.args([
                    "-c",
                    connections,
                    "-d",
                    &time,
                    "-cpu",
                    "1",
                    "--json",
                    "-log",
                    "error",
                ]);
                command.env("ES_ENDPOINT", url).env("LINES", LINES.to_string());
            }
            (Generator::Wrk, _) => {
                command.args(["wrk", "-t", "1", "-c", connections, "-d", &format!("{time}s")]);
                match case {
                    Case::SmallGets => command.arg(url),
                    Case::Bulks => command.arg("-s").arg(folder.join("bulk.lua")).arg(bulk_url),
                };
            }
            (Generator::Hey, _) => {
                command.arg(find("hey").context("hey is there")?);
                command.args(["-cpus", "1", "-c", connections, "-z", &format!("{time}s")]);
                match case {
                    Case::SmallGets => command.arg(url),
                    Case::Bulks => command
                        .args(["-m", "POST", "-T", "application/x-ndjson", "-D"])
                        .arg(body)
                        .arg(bulk_url),
                };
            }
        }
        let before = children_cpu_s()?;
        let output = command.stdin(Stdio::null()).output()?;
        let cpu_s = children_cpu_s()? - before;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(
            output.status.success(),
            "{}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        let requests_per_s = self.requests_per_s(&text)?;
        Ok(Round {
            requests_per_s,
            requests_per_cpu_s: requests_per_s * seconds as f64 / cpu_s.max(0.01),
        })
    }

    fn requests_per_s(self, text: &str) -> Result<f64> {
        let after = |label: &str| -> Result<f64> {
            let line = text.lines().find_map(|line| line.trim().strip_prefix(label));
            let line = line.with_context(|| format!("no `{label}` in {text}"))?;
            Ok(line.trim().parse()?)
        };
        match self {
            Generator::Tidegate => {
                let report: Value = serde_json::from_str(text)?;
                let bad = report["errors"].as_u64().unwrap_or(1) + report["invalid"].as_u64().unwrap_or(1);
                ensure!(bad == 0, "there were errors: {report}");
                report["answers_per_s"].as_f64().context("there is a rate")
            }
            Generator::Wrk => {
                ensure!(!text.contains("Non-2xx"), "there were errors: {text}");
                after("Requests/sec:")
            }
            Generator::Hey => {
                if !text.contains("[200]") || text.contains("Error distribution") {
                    bail!("there were errors: {text}");
                }
                after("Requests/sec:")
            }
        }
    }
}

/// Writes the generators' input for the sink at `url`. Returns the file with the body of a bulk, for
/// generators that send only one body.
fn write_files(folder: &Path, url: &str) -> Result<PathBuf> {
    std::fs::write(
        folder.join("gets.yml"),
        format!("runner: {{no_warm: true}}\nrequests: [{{request: {{url: '{url}/'}}}}]\n"),
    )?;
    let line = |at: usize| {
        format!(
            "{{\"index\":{{\"_index\":\"loadgen\",\"_id\":\"d4tk2m8h0c7s{at:08}\"}}}}\n\
             {{\"@timestamp\":\"2026-11-21T09:03:04.123Z\",\"id\":\"d4tk2m8h0c7s{at:08}\",\"batch\":\"d4tk2m8h0c7s73f0b1g0\",\
             \"user\":\"heidi\",\"bytes\":57{at:03},\"message\":\"GET /orders/57{at:03} by heidi\"}}\n"
        )
    };
    let body = folder.join("bulk.ndjson");
    std::fs::write(&body, (0..LINES).map(line).collect::<String>())?;
    let script = format!(
        "local file = io.open({:?}, \"rb\")\nwrk.method = \"POST\"\nwrk.body = file:read(\"*a\")\n\
         wrk.headers[\"Content-Type\"] = \"application/x-ndjson\"\n",
        body.display().to_string()
    );
    std::fs::write(folder.join("bulk.lua"), script)?;
    Ok(body)
}

/// A fake cluster of one node, on the second core.
struct Sink {
    process: Child,
    url: String,
}

impl Sink {
    fn start() -> Result<Sink> {
        let mut process = Command::new("taskset")
            .args(["-c", CORES[1]])
            .arg(Build::Release.program())
            .args(["sink", "--nodes", "1", "--port", "0", "--index", "loadgen:6"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let out = process.stdout.take().context("its output is a pipe")?;
        let mut url = String::new();
        BufReader::new(out).read_line(&mut url)?;
        ensure!(url.starts_with("http"), "the sink did not start");
        Ok(Sink {
            process,
            url: url.trim().to_owned(),
        })
    }
}

impl Sink {
    /// CPU time since `before` was taken, including threads of closed connections.
    fn cpu_seconds(&self, before: f64) -> Result<f64> {
        Ok(machine::process_cpu_seconds(self.process.id())? - before)
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the CPU seconds of the children that have ended.
fn children_cpu_s() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let rest = stat.rsplit(')').next().context("a name in parentheses")?;
    // User and system time of children are the 14th and 15th words after the name, in ticks.
    let words: Vec<&str> = rest.split_whitespace().collect();
    let ticks = |at: usize| -> Result<u64> { Ok(words.get(at).context("a word")?.parse()?) };
    Ok((ticks(13)? + ticks(14)?) as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Finds a program: on the path, or where Go installs programs.
fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join("go/bin"));
    std::env::split_paths(&path)
        .chain(home)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

fn spread(values: &[f64]) -> String {
    let (min, max) = values.iter().fold((f64::MAX, 0.0_f64), |(min, max), value| {
        (min.min(*value), max.max(*value))
    });
    let digits = usize::from(max < 1_000.0);
    format!("{:.digits$} ({min:.digits$}..{max:.digits$})", median(values))
}

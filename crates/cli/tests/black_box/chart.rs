//! The Helm chart: templates, values and their schema use the same names. Where helm is installed, rendered
//! configurations can be used, and bad values are refused.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn chart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ops/helm/tidegate")
}

fn read(file: &str) -> String {
    std::fs::read_to_string(chart().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Returns the names of values in `values.yaml`, which has at most two levels; a section's keys are
/// `section.key`.
fn written() -> BTreeSet<String> {
    let (text, mut section, mut names) = (read("values.yaml"), String::new(), BTreeSet::new());
    for line in text.lines().filter(|line| !line.trim_start().starts_with('#')) {
        let Some((key, value)) = line.split_once(':') else {
            continue;
        };
        match key.strip_prefix("  ") {
            Some(key) => names.insert(format!("{section}.{key}")),
            None if value.trim().is_empty() => {
                section = key.to_owned();
                false
            }
            None => names.insert(key.to_owned()),
        };
    }
    names
}

/// Returns the names of values in the schema.
fn described(schema: &Value) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (name, described) in schema["properties"].as_object().unwrap() {
        assert!(described["description"].is_string(), "{name}");
        match described["properties"].as_object() {
            Some(keys) => names.extend(keys.keys().map(|key| format!("{name}.{key}"))),
            None => drop(names.insert(name.clone())),
        }
    }
    names
}

#[test]
fn templates_values_and_schema_know_the_same_names() {
    let version = format!("appVersion: \"{}\"", env!("CARGO_PKG_VERSION"));
    assert!(
        read("Chart.yaml").contains(&version),
        "the image's tag is {version}"
    );
    let schema: Value = serde_json::from_str(&read("values.schema.json")).unwrap();
    let mut described = described(&schema);
    // `global` is Helm's own.
    assert!(described.remove("global"));
    let mut written = written();
    for key in ["requests", "limits"] {
        assert!(written.remove(&format!("resources.{key}")), "{written:?}");
    }
    written.insert("resources".to_owned());
    assert_eq!(written, described);

    let mut used = BTreeSet::new();
    for file in std::fs::read_dir(chart().join("templates")).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        for rest in text.split(".Values.").skip(1) {
            let end = rest.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '.');
            used.insert(rest[..end.unwrap_or(rest.len())].to_owned());
        }
    }
    assert_eq!(used, described, "each is used, and nothing else");
}

fn helm(arguments: &[&str]) -> Output {
    Command::new("helm")
        .args(arguments)
        .arg(chart())
        .output()
        .unwrap()
}

/// Returns the gateway's file in what helm rendered.
fn configuration(rendered: &str) -> String {
    let (_, after) = rendered.split_once("  tidegate.yml: |\n").unwrap();
    let lines = after
        .lines()
        .take_while(|line| line.is_empty() || line.starts_with("    "));
    lines
        .map(|line| format!("{}\n", line.get(4..).unwrap_or_default()))
        .collect()
}

#[test]
fn what_helm_renders_can_be_used() {
    let version = Command::new("helm").arg("version").output();
    if !version.is_ok_and(|output| output.status.success()) {
        #[allow(clippy::print_stderr, reason = "what is not proven is said")]
        {
            eprintln!("not proven: there is no helm here");
        }
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tidegate.yml");
    let kinds = "Deployment StatefulSet PodDisruptionBudget ServiceMonitor NetworkPolicy";
    for (values, has) in [
        ("", "Deployment PodDisruptionBudget NetworkPolicy"),
        ("ci/sync-values.yaml", "Deployment"),
        (
            "ci/async-values.yaml",
            "StatefulSet PodDisruptionBudget ServiceMonitor NetworkPolicy",
        ),
    ] {
        let values = format!("--values={}", chart().join(values).display());
        let mut arguments = vec!["template", "--kube-version=1.31.0", "gw"];
        arguments.extend((!values.ends_with("tidegate/")).then_some(values.as_str()));
        let output = helm(&arguments);
        assert!(
            output.status.success(),
            "{values}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let rendered = String::from_utf8(output.stdout).unwrap();
        for kind in kinds.split(' ') {
            let is_there = rendered.lines().any(|line| line == format!("kind: {kind}"));
            assert_eq!(
                is_there,
                has.split(' ').any(|wanted| wanted == kind),
                "{values}: {kind}"
            );
        }
        // Certificates are in Secrets, which do not exist here: listeners make their own, clusters have none.
        let text = configuration(&rendered);
        let lines: Vec<&str> = text.lines().filter(|line| !line.contains("_file:")).collect();
        let is_empty = |at: usize| {
            let next = lines.get(at + 1).map_or("", |next| next.trim());
            lines[at].trim() == "tls:" && next != "enabled: true"
        };
        let text: String = (0..lines.len())
            .filter(|at| !is_empty(*at))
            .map(|at| format!("{}\n", lines[at]))
            .collect();
        std::fs::write(&file, &text).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .arg("check")
            .arg(&file)
            .env("TIDEGATE_ADMIN_TOKEN", "0123456789abcdef")
            .env("TIDEGATE_USER", "gateway")
            .env("TIDEGATE_PASSWORD", "secret")
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(told.contains(": good"), "{values}: {told}\n{text}");
    }
    for refused in [
        "--set=mode=both",
        "--set=replicas=0",
        "--set=unknown=1",
        "--set=serviceMonitor.enabled=true",
        "--set=serviceMonitor.enabled=true,admin.tokenSecret=a",
        "--set=terminationGracePeriodSeconds=34",
        "--set=preStopSleepSeconds=30",
        "--set=podDisruptionBudget.maxUnavailable=0",
        "--set=podDisruptionBudget.maxUnavailable=0%",
    ] {
        let output = helm(&["template", "--kube-version=1.31.0", refused, "gw"]);
        assert!(!output.status.success(), "{refused}");
    }
}

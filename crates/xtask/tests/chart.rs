//! Checks the Helm chart as helm renders it, and as Kubernetes and the gateway read it. Each object is
//! validated against the schemas of two versions of Kubernetes, which refuse unknown fields, and
//! `tidegate check` must accept each configuration. Go (1.26 or later) builds the program that renders, which
//! contains helm's own engine: `ops/helm/check`.

#![allow(clippy::unwrap_used, reason = "a test that meets something unexpected ends")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::Value;

/// The oldest version that the chart supports, and the newest whose schemas are available.
const VERSIONS: [&str; 2] = ["1.25", "1.30"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

fn told(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| {
        panic!("{command:?}: {error}; Go 1.26 or later is needed (https://go.dev/dl)")
    });
    let [text, error] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    assert!(output.status.success(), "{command:?}: {error}{text}");
    text.into_owned()
}

/// The program that renders, and the folder of the schemas.
struct Tools {
    folder: tempfile::TempDir,
    schemas: PathBuf,
}

impl Tools {
    fn get() -> &'static Self {
        static TOOLS: OnceLock<Tools> = OnceLock::new();
        TOOLS.get_or_init(|| {
            let source = root().join("ops/helm/check");
            let folder = tempfile::tempdir().unwrap();
            let mut build = Command::new("go");
            build
                .current_dir(&source)
                .args(["build", "-o"])
                .arg(folder.path().join("check"));
            told(build.arg("."));
            let mut download = Command::new("go");
            download
                .current_dir(&source)
                .args(["mod", "download", "-json", "sigs.k8s.io/kubectl-validate"]);
            let module: Value = serde_json::from_str(&told(&mut download)).unwrap();
            let schemas = Path::new(module["Dir"].as_str().unwrap()).join("pkg/openapiclient/builtins");
            Self { folder, schemas }
        })
    }

    fn render(&self, version: &str, words: &[&str]) -> Output {
        let mut check = Command::new(self.folder.path().join("check"));
        check
            .arg(root().join("ops/helm/tidegate"))
            .arg(self.schemas.join(version))
            .args(words);
        check.output().unwrap()
    }

    /// Renders the chart with these values and every version, and returns the objects, which must be the
    /// same.
    fn objects(&self, words: &[&str]) -> Vec<Value> {
        let [old, new] = VERSIONS.map(|version| {
            let output = self.render(version, words);
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{version} {words:?}: {error}");
            serde_json::from_slice::<Vec<Value>>(&output.stdout).unwrap()
        });
        assert_eq!(old, new);
        new
    }

    fn refusal(&self, words: &[&str]) -> String {
        let output = self.render(VERSIONS[1], words);
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        String::from_utf8(output.stderr).unwrap()
    }
}

fn values(file: &str) -> String {
    let file = root().join("ops/helm/tidegate/ci").join(file);
    file.to_str().unwrap().to_owned()
}

fn kinds(objects: &[Value]) -> Vec<&str> {
    let mut kinds: Vec<&str> = objects
        .iter()
        .map(|object| object["kind"].as_str().unwrap())
        .collect();
    kinds.sort_unstable();
    kinds
}

fn one<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    objects.iter().find(|object| object["kind"] == kind).unwrap()
}

fn gateways_file(objects: &[Value]) -> &str {
    one(objects, "ConfigMap")["data"]["tidegate.yml"]
        .as_str()
        .unwrap()
}

/// Checks that the gateway accepts the rendered configuration.
fn is_taken(objects: &[Value]) {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    // The files that Secrets put into the pod.
    let mut openssl = Command::new("openssl");
    openssl.args([
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/CN=gateway",
        "-keyout",
    ]);
    told(openssl.arg(at("tls.key")).arg("-out").arg(at("tls.crt")));
    let made = gateways_file(objects)
        .replace("/etc/tidegate-tls/", &at(""))
        .replace("/etc/tidegate-admin-tls/", &at(""))
        .replace("/etc/tidegate-ca/ca.crt", &at("tls.crt"));
    std::fs::write(at("tidegate.yml"), made).unwrap();
    let program = std::env::var_os("TIDEGATE_TEST_PROGRAM");
    let program = program.map_or_else(
        || Path::new(env!("CARGO_BIN_EXE_xtask")).with_file_name("tidegate"),
        PathBuf::from,
    );
    let mut check = Command::new(program);
    check.arg("check").arg(at("tidegate.yml")).current_dir(&folder);
    for name in ["TIDEGATE_ADMIN_TOKEN", "TIDEGATE_USER", "TIDEGATE_PASSWORD"] {
        check.env(name, "a-word-of-many-letters");
    }
    told(&mut check);
}

#[test]
#[ignore = "./dev test runs it: Go builds helm's engine, which takes minutes the first time"]
fn each_way_to_install_it_is_what_kubernetes_and_the_gateway_take() {
    let tools = Tools::get();
    let sync = tools.objects(&[]);
    assert_eq!(
        kinds(&sync),
        [
            "ConfigMap",
            "Deployment",
            "NetworkPolicy",
            "PodDisruptionBudget",
            "Service"
        ]
    );
    is_taken(&sync);
    let least = tools.objects(&["-values", &values("sync-values.yaml")]);
    assert_eq!(kinds(&least), ["ConfigMap", "Deployment", "Service"]);
    is_taken(&least);
    let queued = tools.objects(&["-values", &values("async-values.yaml")]);
    let wanted = [
        "ConfigMap",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "Service",
        "Service",
        "Service",
        "ServiceMonitor",
        "StatefulSet",
    ];
    assert_eq!(kinds(&queued), wanted);
    is_taken(&queued);
    assert!(gateways_file(&queued).contains("\n    protocol: grpc"));
    assert!(!gateways_file(&sync).contains("tracing"));
    let refused = tools.refusal(&["-set", "tracing.protocol=udp"]);
    assert!(refused.contains("tracing"), "{refused}");
}

#[test]
#[ignore = "./dev test runs it: Go builds helm's engine, which takes minutes the first time"]
fn queues_keep_their_volumes_and_pods_run_without_rights() {
    let tools = Tools::get();
    let queued = tools.objects(&["-values", &values("async-values.yaml")]);
    let set = &one(&queued, "StatefulSet")["spec"];
    let kept = &set["persistentVolumeClaimRetentionPolicy"];
    assert_eq!([&kept["whenDeleted"], &kept["whenScaled"]], ["Retain", "Retain"]);
    assert_eq!(
        set["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"],
        "50Gi"
    );
    for objects in [&queued, &tools.objects(&[])] {
        let pods = objects
            .iter()
            .find(|object| object["spec"]["template"].is_object())
            .unwrap();
        let pod = &pods["spec"]["template"]["spec"];
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        assert_eq!(pod["automountServiceAccountToken"], false);
        let container = &pod["containers"][0];
        let bounds = &container["securityContext"];
        assert_eq!(bounds["readOnlyRootFilesystem"], true);
        assert_eq!(bounds["allowPrivilegeEscalation"], false);
        assert_eq!(bounds["capabilities"]["drop"][0], "ALL");
        for probe in ["livenessProbe", "readinessProbe"] {
            assert_eq!(container[probe]["exec"]["command"][1], "health", "{probe}");
        }
        let labels = &pods["spec"]["template"]["metadata"]["labels"];
        for (name, value) in pods["spec"]["selector"]["matchLabels"].as_object().unwrap() {
            assert_eq!(&labels[name], value);
        }
    }
}

#[test]
#[ignore = "./dev test runs it: Go builds helm's engine, which takes minutes the first time"]
fn values_that_are_wrong_are_refused_by_name() {
    let tools = Tools::get();
    for (words, why) in [
        ("replicas=none", "/replicas"),
        ("mode=fast", "/mode"),
        ("service.type=Foo", "/service/type"),
        ("replikas=3", "replikas"),
        ("serviceMonitor.enabled=true", "admin.tokenSecret"),
        // Only Kubernetes refuses this.
        ("tolerations[0].kei=a", "kei"),
    ] {
        let refused = tools.refusal(&["-set", words]);
        assert!(refused.contains(why), "{words}: {refused}");
    }
}

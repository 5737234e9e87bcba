//! Servers that speak TLS as a broker does, and no more: the `openssl` command shows certificates, and speaks
//! versions, that no other library would. The certificates are made anew in each run.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// A folder with two authorities, `ca.pem` and `other.pem`, and the certificates that the first has signed.
pub(crate) struct Certificates {
    folder: tempfile::TempDir,
}

/// A server that shows a certificate. It ends when this value is dropped.
pub(crate) struct FakeBroker {
    pub(crate) address: String,
    child: Child,
    told: Arc<Mutex<Vec<u8>>>,
}

/// The names that a broker on this machine has.
const HERE: &str = "DNS:localhost,IP:127.0.0.1";

/// Runs `openssl` with these words, which have no spaces in them.
fn openssl(folder: &Path, words: &str) {
    let mut command = Command::new("openssl");
    let output = command.args(words.split(' ')).current_dir(folder).output();
    let output = output.expect("openssl, which ./dev installs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "openssl {words}: {said}");
}

// === impl Certificates ===

impl Certificates {
    /// Makes all of them once for all tests of a process.
    pub(crate) fn get() -> &'static Self {
        static CERTIFICATES: OnceLock<Certificates> = OnceLock::new();
        CERTIFICATES.get_or_init(|| {
            let made = Self {
                folder: tempfile::tempdir().unwrap(),
            };
            for (name, key) in [
                ("rsa", "RSA -pkeyopt rsa_keygen_bits:2048"),
                ("short", "RSA -pkeyopt rsa_keygen_bits:1024"),
                ("p521", "EC -pkeyopt ec_paramgen_curve:P-521"),
                ("ed25519", "ed25519"),
            ] {
                made.openssl(&format!("genpkey -algorithm {key} -out {name}.key"));
            }
            for (name, key) in [("ca", "rsa"), ("other", "rsa"), ("short_ca", "short")] {
                made.openssl(&format!(
                    "req -x509 -new -key {key}.key -subj /CN={name} -days 30 -sha256 -out {name}.pem"
                ));
            }
            made.sign("good", "rsa", "ca", HERE, "-sha256 -days 30");
            made.sign("sha1", "rsa", "ca", HERE, "-sha1 -days 30");
            made.sign("short", "short", "ca", HERE, "-sha256 -days 30");
            made.sign(
                "elsewhere",
                "rsa",
                "ca",
                "DNS:elsewhere.example",
                "-sha256 -days 30",
            );
            // It ended a day ago, before it began.
            made.sign("expired", "rsa", "ca", HERE, "-sha256 -days -1");
            made.sign("unknown", "rsa", "other", HERE, "-sha256 -days 30");
            made.sign("of_short_ca", "rsa", "short_ca", HERE, "-sha256 -days 30");
            made.sign("p521", "p521", "ca", HERE, "-sha256 -days 30");
            made.sign("ed25519", "ed25519", "ca", HERE, "-sha256 -days 30");
            made
        })
    }

    /// Has an authority sign a certificate for a key.
    fn sign(&self, name: &str, key: &str, authority: &str, names: &str, how: &str) {
        let extensions = self.folder.path().join(format!("{name}.names"));
        std::fs::write(extensions, format!("subjectAltName={names}\n")).unwrap();
        self.openssl(&format!(
            "req -new -key {key}.key -subj /CN=broker -out {name}.request"
        ));
        let by = match authority {
            "short_ca" => "short",
            _ => "rsa",
        };
        self.openssl(&format!(
            "x509 -req -in {name}.request -CA {authority}.pem -CAkey {by}.key -set_serial 2 {how} -extfile \
             {name}.names -out {name}.pem"
        ));
        if name != key {
            let copied = self.file(&format!("{name}.key"));
            std::fs::copy(self.file(&format!("{key}.key")), copied).unwrap();
        }
    }

    fn openssl(&self, words: &str) {
        openssl(self.folder.path(), words);
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

// === impl FakeBroker ===

impl FakeBroker {
    /// Starts a server with a certificate and its key, and with these options of `openssl s_server`. It
    /// allows everything that they do not forbid.
    pub(crate) fn start(certificate: &str, options: &str) -> Self {
        Self::start_at("127.0.0.1:0", certificate, options)
    }

    /// Starts it at an address that is free.
    pub(crate) fn start_at(address: &str, certificate: &str, options: &str) -> Self {
        let certificates = Certificates::get();
        let mut command = Command::new("openssl");
        command.args(["s_server", "-accept", address, "-cert"]);
        command.arg(certificates.file(&format!("{certificate}.pem")));
        command
            .arg("-key")
            .arg(certificates.file(&format!("{certificate}.key")));
        if !options.contains("-cipher") {
            command.args(["-cipher", "ALL:@SECLEVEL=0"]);
        }
        command.args(options.split(' ').filter(|word| !word.is_empty()));
        // It ends with its standard input.
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().expect("openssl, which ./dev installs");
        let (mut out, told) = (child.stdout.take().unwrap(), Arc::new(Mutex::default()));
        let mut server = Self {
            address: String::new(),
            child,
            told: Arc::clone(&told),
        };
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = out.read(&mut bytes) {
                told.lock().extend_from_slice(&bytes[..read]);
            }
        });
        // It says at which port if that was its own choice.
        server.address = server.until("it listens", |told| {
            let (_, rest) = told.split_once("ACCEPT")?;
            let (chosen, _) = rest.split_once('\n')?;
            Some(
                Some(chosen.trim())
                    .filter(|chosen| !chosen.is_empty())
                    .unwrap_or(address)
                    .to_owned(),
            )
        });
        server
    }

    /// Returns what clients have said to it after the handshake, amid remarks of its own.
    pub(crate) fn told(&self) -> String {
        String::from_utf8_lossy(&self.told.lock()).into_owned()
    }

    /// Waits until a client has said what every client of Kafka's says first: the name of its library.
    pub(crate) fn is_spoken_to(&self) {
        self.until("a client speaks", |told| {
            told.contains("librdkafka").then_some(())
        });
    }

    fn until<T>(&self, what: &str, holds: impl Fn(&str) -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            let told = self.told();
            if let Some(found) = holds(&told) {
                return found;
            }
            assert!(
                began.elapsed() < Duration::from_secs(30),
                "not so: {what}: {told}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for FakeBroker {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended
        let _ = self.child.wait();
    }
}

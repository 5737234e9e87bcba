//! Programs of other projects that tests build with Go.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Builds the program in this folder of the tests, once, and returns its path.
pub(crate) fn program(source: &str, built: &'static OnceLock<tempfile::TempDir>) -> PathBuf {
    let folder = built.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(source);
        let mut build = Command::new("go");
        build
            .current_dir(source)
            .args(["build", "-o"])
            .arg(folder.path().join("program"));
        let output = build
            .arg(".")
            .output()
            .unwrap_or_else(|error| panic!("{error}; Go 1.26 or later is needed (https://go.dev/dl)"));
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{error}");
        folder
    });
    folder.path().join("program")
}

//! Prepares the programs in `clients` with their toolchains, and runs them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Returns what a command prints; an error contains all of its output.
pub(crate) fn answer_of(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("cannot run {:?}; `./dev test` installs it", command.get_program()))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success(),
        "{command:?} failed: {said}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(said)
}

fn sources(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../clients")
        .join(folder)
}

/// Returns a folder of the build's own for what a toolchain prepares.
fn built(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("clients").join(name)
}

pub(crate) fn python(requirements: &str) -> impl FnOnce(&str, &str) -> Result<Command> {
    let requirements = requirements.to_owned();
    move |url, index| {
        let packages = built(&format!("python-{requirements}"));
        // Two tests need the same packages, and the folder exists before all packages are in it.
        let _turn = turn("pip")?;
        if !packages.exists() {
            let begun = built(&format!("python-{requirements}.begun"));
            let _ = std::fs::remove_dir_all(&begun);
            let list = sources("python").join(format!("{requirements}.txt"));
            let mut pip = Command::new("python3");
            pip.args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "--root-user-action",
                "ignore",
            ]);
            answer_of(pip.arg("--target").arg(&begun).arg("-r").arg(list))
                .context("python3 with pip is needed (Debian: python3-pip)")?;
            std::fs::rename(&begun, &packages)?;
        }
        let mut command = Command::new("python3");
        command
            .env("PYTHONPATH", packages)
            .arg(sources("python").join("bulk.py"))
            .args([url, index]);
        Ok(command)
    }
}

pub(crate) fn go(package: &str) -> impl FnOnce(&str, &str) -> Result<Command> {
    let package = package.to_owned();
    move |url, index| {
        let program = built(&format!("go-{package}"));
        let _turn = turn("go")?;
        // Another test may be running the program: a running file can be replaced, but not written to.
        let begun = built(&format!("go-{package}.begun"));
        let mut build = Command::new("go");
        build
            .current_dir(sources("go"))
            .args(["build", "-o"])
            .arg(&begun)
            .arg(format!("./{package}"));
        answer_of(&mut build).context("Go 1.26 or later is needed (https://go.dev/dl)")?;
        std::fs::rename(&begun, &program)?;
        let mut command = Command::new(program);
        command.args([url, index]);
        Ok(command)
    }
}

pub(crate) fn javascript(package: &str) -> impl FnOnce(&str, &str) -> Result<Command> {
    javascript_program("bulk.js", package)
}

pub(crate) fn javascript_program(program: &str, package: &str) -> impl FnOnce(&str, &str) -> Result<Command> {
    let (program, package) = (program.to_owned(), package.to_owned());
    move |url, index| {
        let folder = sources("javascript");
        let mut npm = Command::new("npm");
        npm.current_dir(&folder)
            .args(["ci", "--silent", "--no-audit", "--no-fund"]);
        // Several tests need the packages; `npm ci` first removes what is there.
        let _turn = turn("npm")?;
        if !folder.join("node_modules/.package-lock.json").exists() {
            answer_of(&mut npm).context("Node.js 20 or later with npm is needed")?;
        }
        let mut command = Command::new("node");
        command
            .current_dir(folder)
            .env("PACKAGE", package)
            .args([&program, url, index]);
        Ok(command)
    }
}

pub(crate) fn java(folder: &str, version: Option<&str>) -> impl FnOnce(&str, &str) -> Result<Command> {
    let (folder, version) = (folder.to_owned(), version.map(str::to_owned));
    move |url, index| {
        let target = built(&format!(
            "java-{folder}-{}",
            version.as_deref().unwrap_or("default")
        ));
        let _turn = turn("maven")?;
        if !target.join("lib").exists() || !target.join("classes/Bulk.class").exists() {
            let mut maven = Command::new("mvn");
            maven
                .current_dir(sources("java").join(&folder))
                .args(["-q", "-B", "package"]);
            maven.arg(format!("-Dbuilt={}", target.display()));
            if let Some(version) = &version {
                maven.arg(format!("-Dclient.version={version}"));
            }
            answer_of(&mut maven).context("Maven and a JDK 17 or later are needed (Debian: maven)")?;
        }
        let mut command = Command::new("java");
        command
            .arg("-cp")
            .arg(format!("{0}/classes:{0}/lib/*", target.display()))
            .args(["Bulk", url, index]);
        Ok(command)
    }
}

/// Lets one test at a time, of any process, use a toolchain's folder.
fn turn(name: &str) -> Result<std::fs::File> {
    std::fs::create_dir_all(built(""))?;
    let file = std::fs::File::create(built(&format!("{name}.lock")))?;
    file.lock()?;
    Ok(file)
}

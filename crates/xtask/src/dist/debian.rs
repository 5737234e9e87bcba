//! The Debian package: dpkg's own tools pack it, with the input written here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::{Tree, executable, output};
use crate::portable;
use crate::steps::run;

/// Packs a tree, and returns the package's file.
pub(super) fn pack(tree: &Tree, to: &Path, compression: &str) -> Result<PathBuf> {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => bail!("Debian's name for {other} is not known here"),
    };
    let program = tree.root.join("usr/bin/tidegate");
    let depends = match portable::glibc_wanted(&program)? {
        // dpkg-shlibdeps would name the glibc of this machine, which also contains threads and the loader.
        Some((major, minor)) => format!("libc6 (>= {major}.{minor})"),
        None => depends(tree)?,
    };
    let installed_kb = kilobytes(&tree.root)?;
    let control = format!(
        "Package: tidegate
Version: {version}
Architecture: {architecture}
Maintainer: Tidegate <tidegate@localhost>
Installed-Size: {installed_kb}
Depends: {depends}, systemd | systemd-standalone-sysusers
Section: net
Priority: optional
Description: write gateway for Elasticsearch and OpenSearch
 Takes bulk requests apart and sends each document to the node that holds its
 shard; or puts them into a durable queue, and delivers them from there.
",
        version = tree.version,
    );
    fs::write(tree.path("DEBIAN/control")?, control)?;
    fs::write(tree.path("DEBIAN/conffiles")?, "/etc/tidegate/tidegate.yml\n")?;
    for (name, text) in [("postinst", POSTINST), ("prerm", PRERM), ("postrm", POSTRM)] {
        let file = tree.path(&format!("DEBIAN/{name}"))?;
        fs::write(&file, text)?;
        executable(&file)?;
    }
    run(Command::new("chmod")
        .args(["-R", "u=rwX,go=rX"])
        .arg(tree.root.join("DEBIAN")))?;
    let file = to.join(format!("tidegate_{}_{architecture}.deb", tree.version));
    let mut build = Command::new("dpkg-deb");
    build.args(["--root-owner-group", "-Z", compression, "--build"]);
    build
        .arg(&tree.root)
        .arg(&file)
        .env("SOURCE_DATE_EPOCH", &tree.epoch);
    run(&mut build)?;
    Ok(file)
}

/// Returns the packages of the libraries that the program is linked with, in the versions that it needs.
fn depends(tree: &Tree) -> Result<String> {
    // dpkg-shlibdeps has to run in a source package.
    let source = tree.root.with_extension("source");
    fs::create_dir_all(source.join("debian"))?;
    fs::write(
        source.join("debian/control"),
        "Source: tidegate\n\nPackage: tidegate\nArchitecture: any\n",
    )?;
    let mut shlibdeps = Command::new("dpkg-shlibdeps");
    shlibdeps
        .arg("-O")
        .arg(tree.root.join("usr/bin/tidegate"))
        .current_dir(&source);
    let told = output(&mut shlibdeps);
    fs::remove_dir_all(&source)?;
    let told = told?;
    let depends = told.lines().find_map(|line| line.strip_prefix("shlibs:Depends="));
    Ok(depends.context("dpkg-shlibdeps names no library")?.to_owned())
}

/// Returns how much disk space the tree takes, as Debian counts it: each file in whole kilobytes, and one for
/// each folder. What folders really take depends on the file system.
fn kilobytes(folder: &Path) -> Result<u64> {
    let mut sum = 1;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let about = entry.metadata()?;
        sum += match about.is_dir() {
            true => kilobytes(&entry.path())?,
            false => about.len().div_ceil(1024),
        };
    }
    Ok(sum)
}

/// The service is neither enabled nor started, since nobody has adapted the configuration yet. A running
/// service gets the new program.
const POSTINST: &str = r#"#!/bin/sh
set -e
[ "$1" = configure ] || exit 0
systemd-sysusers ${DPKG_ROOT:+--root="$DPKG_ROOT"} tidegate.conf
[ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
if [ -n "$2" ]; then
    systemctl try-reload-or-restart tidegate.service
else
    echo "tidegate: write /etc/tidegate/tidegate.yml, try it (tidegate check --online), and systemctl enable --now tidegate"
fi
"#;
const PRERM: &str = r#"#!/bin/sh
set -e
[ "$1" = remove ] && [ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ] || exit 0
systemctl disable --now tidegate.service
"#;
/// Removing the program does not throw away what clients were told is safe.
const POSTRM: &str = r#"#!/bin/sh
set -e
if [ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload
fi
if [ "$1" = purge ] && [ -d "$DPKG_ROOT/var/lib/tidegate" ]; then
    echo "tidegate: /var/lib/tidegate is left: its queues may hold documents that are nowhere else"
fi
exit 0
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_package_does_not_depend_on_what_folders_take() {
        let folder = std::env::temp_dir().join(format!("tidegate-size-{}", std::process::id()));
        fs::create_dir_all(folder.join("some/folder")).expect("a folder");
        // A folder with so many names takes more than one block of the file system.
        for number in 0..200 {
            let name = format!("{number:0>100}");
            fs::write(folder.join("some").join(name), vec![0; number]).expect("a file");
        }
        fs::write(folder.join("some/large"), vec![0; 1025]).expect("a file");
        let size = kilobytes(&folder);
        fs::remove_dir_all(&folder).expect("it is there");
        assert_eq!(size.expect("a size"), 3 + 199 + 2);
    }
}

//! The RPM package: rpm's own tools pack it, with the input written here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::{Tree, files_below};
use crate::steps::run;

/// Packs a tree, and returns the package's file.
pub(super) fn pack(tree: &Tree, to: &Path, compression: &str) -> Result<PathBuf> {
    let top = tree.root.with_extension("rpm");
    let built = build(tree, &top, compression);
    let name = format!("tidegate-{}-1.{}.rpm", tree.version, std::env::consts::ARCH);
    let packed = built.and_then(|()| {
        let made = top.join("RPMS").join(std::env::consts::ARCH).join(&name);
        fs::copy(&made, to.join(&name)).with_context(|| made.display().to_string())
    });
    fs::remove_dir_all(&top)?;
    packed.map(|_| to.join(name))
}

fn build(tree: &Tree, top: &Path, compression: &str) -> Result<()> {
    let content = top.join("content");
    fs::create_dir_all(&content)?;
    let mut copy = Command::new("cp");
    copy.arg("-a")
        .arg(tree.root.join("usr"))
        .arg(tree.root.join("etc"));
    run(copy.arg(&content))?;
    // The folder where zsh looks on systems with such packages.
    let zsh = content.join("usr/share/zsh");
    fs::rename(zsh.join("vendor-completions"), zsh.join("site-functions"))?;
    let mut listed = String::new();
    for file in files_below(&content)? {
        let kind = match file.to_str().context("a name in UTF-8")? {
            file if file.starts_with("etc/") => "%config(noreplace) ",
            file if file.starts_with("usr/share/doc/") => "%doc ",
            _ => "",
        };
        listed.push_str(&format!("{kind}/{}\n", file.display()));
    }
    let specification = top.join("tidegate.spec");
    fs::write(&specification, specified(tree, &content, &listed))?;
    let payload = match compression {
        "xz" => "w6.xzdio",
        "gzip" => "w9.gzdio",
        _ => "w1.gzdio",
    };
    let mut rpmbuild = Command::new("rpmbuild");
    rpmbuild.arg("-bb").arg("--quiet");
    for (name, value) in [
        ("_topdir", top.to_str().context("a name in UTF-8")?),
        ("_binary_payload", payload),
        // Times are the commit's, and nothing reveals the machine.
        ("use_source_date_epoch_as_buildtime", "1"),
        ("clamp_mtime_to_source_date_epoch", "1"),
        ("source_date_epoch_from_changelog", "0"),
        ("_buildhost", "localhost"),
        // The program is stripped already.
        ("debug_package", "%{nil}"),
        ("__os_install_post", "%{nil}"),
        ("_build_id_links", "none"),
    ] {
        rpmbuild.arg("--define").arg(format!("{name} {value}"));
    }
    run(rpmbuild.arg(&specification).env("SOURCE_DATE_EPOCH", &tree.epoch))
}

fn specified(tree: &Tree, content: &Path, listed: &str) -> String {
    format!(
        "Name: tidegate
Version: {version}
Release: 1
Summary: write gateway for Elasticsearch and OpenSearch
License: Apache-2.0
Requires: systemd

%description
Takes bulk requests apart and sends each document to the node that holds its
shard; or puts them into a durable queue, and delivers them from there.

%install
cp -a {content}/. %{{buildroot}}/

%post
systemd-sysusers tidegate.conf || :
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    if [ \"$1\" -gt 1 ]; then systemctl try-reload-or-restart tidegate.service; fi
fi

%preun
if [ \"$1\" = 0 ] && [ -d /run/systemd/system ]; then systemctl disable --now tidegate.service; fi

%postun
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi

%files
%defattr(-,root,root)
%dir /etc/tidegate
{listed}",
        version = tree.version,
        content = content.display(),
    )
}

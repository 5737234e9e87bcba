//! The container image, as an archive in the OCI image layout. Making it needs neither a daemon nor a base
//! image. It contains the program, the libraries that it is linked with, a configuration, and a user who is
//! not root. `docker load`, `podman load` and `skopeo` accept it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use super::{Tree, output, sha256, tar};
use crate::steps::run;

/// The id of a user that no machine has.
const USER: &str = "65532";

/// The architecture's name in `linux/…`, as users of images know it.
fn architecture() -> Result<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => bail!("the images' name for {other} is not known here"),
    }
}

/// Packs the program of a tree, and returns the archive's file.
pub(super) fn pack(tree: &Tree, to: &Path, compression: &str) -> Result<PathBuf> {
    let name = format!("tidegate-{}-{}.oci.tar", tree.version, architecture()?);
    let work = tree.root.with_extension("image");
    let built = build(tree, &work, &to.join(&name), compression);
    fs::remove_dir_all(&work)?;
    built.map(|()| to.join(name))
}

fn build(tree: &Tree, work: &Path, file: &Path, compression: &str) -> Result<()> {
    let (content, layout) = (work.join("content"), work.join("layout"));
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs)?;
    fill(tree, &content)?;
    let layer = work.join("layer.tar");
    pack_layer(tree, &content, &layer)?;
    let contents = sha256(&layer)?;
    let (layer, layer_is) = match compression {
        "none" => (layer, "application/vnd.oci.image.layer.v1.tar"),
        _ => {
            run(Command::new("gzip").arg("-9n").arg(&layer))?;
            (
                layer.with_extension("tar.gz"),
                "application/vnd.oci.image.layer.v1.tar+gzip",
            )
        }
    };
    let created = tree.time()?;
    let layer = blob(&blobs, &layer, layer_is)?;
    let config = work.join("config.json");
    fs::write(&config, described(tree, &created, &contents)?.to_string())?;
    let config = blob(&blobs, &config, "application/vnd.oci.image.config.v1+json")?;
    let manifest = work.join("manifest.json");
    let text = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config,
        "layers": [layer],
    });
    fs::write(&manifest, text.to_string())?;
    let mut manifest = blob(&blobs, &manifest, "application/vnd.oci.image.manifest.v1+json")?;
    manifest["platform"] = json!({"architecture": architecture()?, "os": "linux"});
    // podman takes the whole name from the first, containerd from the second; Docker reads `manifest.json`.
    let name = format!("tidegate:{}", tree.version);
    manifest["annotations"] = json!({
        "org.opencontainers.image.ref.name": name,
        "io.containerd.image.name": format!("docker.io/library/{name}"),
    });
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [manifest],
    });
    fs::write(layout.join("index.json"), index.to_string())?;
    fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)?;
    // This is what `docker load` reads if it does not know the layout yet.
    let path = |blob: &Value| {
        blob["digest"]
            .as_str()
            .unwrap_or_default()
            .replace("sha256:", "blobs/sha256/")
    };
    let docker = json!([{
        "Config": path(&config),
        "RepoTags": [name],
        "Layers": [path(&layer)],
    }]);
    fs::write(layout.join("manifest.json"), docker.to_string())?;
    run(Command::new("chmod").args(["-R", "u=rwX,go=rX"]).arg(&layout))?;
    run(tar(&layout, file, &tree.epoch).arg("--create").arg("."))
}

/// Fills the image's root folder.
fn fill(tree: &Tree, content: &Path) -> Result<()> {
    let path = |file: &str| -> Result<PathBuf> {
        let path = content.join(file.trim_start_matches('/'));
        fs::create_dir_all(path.parent().context("a folder")?)?;
        Ok(path)
    };
    let program = tree.root.join("usr/bin/tidegate");
    fs::copy(&program, path("usr/bin/tidegate")?)?;
    for library in libraries(&program)? {
        fs::copy(&library, path(&library)?)?;
    }
    let config = fs::read_to_string(tree.root.join("etc/tidegate/tidegate.yml"))?;
    // In a container nobody else is on this machine.
    let config = config.replace("127.0.0.1:8000", "0.0.0.0:8000");
    fs::write(path("etc/tidegate/tidegate.yml")?, config)?;
    let user = format!("tidegate:x:{USER}:{USER}:Tidegate:/var/lib/tidegate:/sbin/nologin\n");
    fs::write(
        path("etc/passwd")?,
        format!("root:x:0:0:root:/:/sbin/nologin\n{user}"),
    )?;
    fs::write(path("etc/group")?, format!("root:x:0:\ntidegate:x:{USER}:\n"))?;
    fs::write(path("etc/nsswitch.conf")?, "hosts: files dns\n")?;
    // These authorities are for clusters with public certificates; the configuration names any others.
    let authorities = "etc/ssl/certs/ca-certificates.crt";
    if Path::new("/").join(authorities).exists() {
        fs::copy(Path::new("/").join(authorities), path(authorities)?)?;
    }
    fs::copy(
        crate::root().join("LICENSE"),
        path("usr/share/doc/tidegate/copyright")?,
    )?;
    fs::create_dir_all(content.join("var/lib/tidegate"))?;
    fs::create_dir_all(content.join("tmp"))?;
    run(Command::new("chmod").args(["-R", "u=rwX,go=rX"]).arg(content))?;
    run(Command::new("chmod")
        .arg("700")
        .arg(content.join("var/lib/tidegate")))?;
    run(Command::new("chmod").arg("1777").arg(content.join("tmp")))
}

/// Returns the files of the libraries that a program is linked with, and of its loader.
fn libraries(program: &Path) -> Result<Vec<String>> {
    let told = output(Command::new("ldd").arg(program))?;
    let mut found = Vec::new();
    for line in told.lines() {
        let library = line.split("=>").last().unwrap_or_default();
        match library.split_whitespace().next() {
            Some(file) if file.starts_with('/') => found.push(file.to_owned()),
            // The kernel's own library, or a program without libraries.
            Some(name) if name.starts_with("linux-vdso") || name == "statically" => {}
            _ => bail!("ldd: {line}"),
        }
    }
    Ok(found)
}

/// Everything belongs to root, except for the data folder.
fn pack_layer(tree: &Tree, content: &Path, layer: &Path) -> Result<()> {
    let mut all = tar(content, layer, &tree.epoch);
    run(all.args(["--create", "--exclude=./var/lib/tidegate", "."]))?;
    let mut data = tar(content, layer, &tree.epoch);
    data.arg("--append").arg(format!("--owner={USER}"));
    run(data.arg(format!("--group={USER}")).arg("./var/lib/tidegate"))
}

/// Puts a file among the blobs, and returns its description.
fn blob(blobs: &Path, file: &Path, is: &str) -> Result<Value> {
    let digest = sha256(file)?;
    let size = fs::copy(file, blobs.join(&digest))?;
    Ok(json!({"mediaType": is, "digest": format!("sha256:{digest}"), "size": size}))
}

/// Returns the configuration with which the image runs.
fn described(tree: &Tree, created: &str, contents: &str) -> Result<Value> {
    let second = 1_000_000_000_u64;
    Ok(json!({
        "architecture": architecture()?,
        "os": "linux",
        "created": created,
        "config": {
            "User": format!("{USER}:{USER}"),
            "Env": ["PATH=/usr/bin"],
            "Entrypoint": ["/usr/bin/tidegate"],
            "Cmd": ["gateway", "--config", "/etc/tidegate/tidegate.yml"],
            "WorkingDir": "/var/lib/tidegate",
            "ExposedPorts": {"8000/tcp": {}},
            "Volumes": {"/var/lib/tidegate": {}},
            "StopSignal": "SIGTERM",
            "Healthcheck": {
                "Test": ["CMD", "/usr/bin/tidegate", "health"],
                "Interval": 10 * second,
                "Timeout": 6 * second,
                "StartPeriod": 5 * second,
                "Retries": 3,
            },
            "Labels": {
                "org.opencontainers.image.title": "tidegate",
                "org.opencontainers.image.version": tree.version,
                "org.opencontainers.image.revision": tree.commit,
                "org.opencontainers.image.created": created,
                "org.opencontainers.image.licenses": "Apache-2.0",
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{contents}")]},
        "history": [{"created": created, "created_by": "./dev dist"}],
    }))
}

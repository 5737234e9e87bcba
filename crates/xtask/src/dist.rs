//! `./dev dist`: builds from this checkout what people install: Debian and RPM packages, an archive with the
//! same contents, a container image, and a bill of materials. The same program gives the same bytes: times
//! are the commit's, owners are root, and orders are fixed.

mod debian;
mod image;
mod rpm;
mod sbom;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::portable;
use crate::root;
use crate::steps::run;
use crate::suite;
use crate::terminal::say;

/// Options: the program to pack, and how.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Program to pack, in place of building one
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Folder to write to
    #[arg(long, value_name = "FOLDER", default_value = "dist")]
    to: PathBuf,
    /// Compression of the package's contents; `none` for tests only
    #[arg(long, value_name = "HOW", default_value = "xz", value_parser = ["xz", "gzip", "none"])]
    compression: String,
    /// Install the result on an old machine, run its image, and let it speak to real Kafka brokers, fetched
    /// with Maven
    #[arg(long = "try")]
    tried: bool,
}

/// The largest size of any file that is made.
const PACKED_MAX: u64 = 20_000_000;

/// The largest size of the stripped program, 1 % more than it has. It may only shrink: 20 MB is the aim.
const PROGRAM_MAX: u64 = 26_000_000;

/// The files to install, in a folder that stands for `/`.
struct Tree {
    /// Removed with the tree.
    _folder: tempfile::TempDir,
    root: PathBuf,
    version: String,
    /// The time of all files, in seconds since 1970: the commit's time.
    epoch: String,
    commit: String,
}

/// Builds, packs, and lists the results.
pub(crate) fn run_verb(options: &Options) -> Result<()> {
    let program = match &options.program {
        Some(program) => program.clone(),
        None => portable::build("dist", "console,own-tls")?,
    };
    let (program, to) = (std::path::absolute(program)?, std::path::absolute(&options.to)?);
    fs::create_dir_all(&to)?;
    let tree = Tree::make(&program)?;
    // Programs that tests pack have everything in them.
    if options.compression != "none" {
        let bytes = is_small(&tree.root.join("usr/bin/tidegate"), PROGRAM_MAX)?;
        say(&format!("the program ({:.1} MB)", bytes as f64 / 1e6));
    }
    let package = debian::pack(&tree, &to, &options.compression)?;
    let made = [
        package,
        rpm::pack(&tree, &to, &options.compression)?,
        tree.archive(&to, &options.compression)?,
        image::pack(&tree, &to, &options.compression)?,
        sbom::write(&tree, &to)?,
    ];
    let names = made.iter().filter_map(|file| file.file_name());
    let mut sums = Command::new("sha256sum");
    let sums = sums.args(names).current_dir(&to).output()?;
    ensure!(
        sums.status.success(),
        "sha256sum: {}",
        String::from_utf8_lossy(&sums.stderr)
    );
    fs::write(to.join("SHA256SUMS"), &sums.stdout)?;
    for file in made {
        let max = if options.compression == "none" {
            u64::MAX
        } else {
            PACKED_MAX
        };
        let bytes = is_small(&file, max)?;
        let megabytes = bytes as f64 / 1e6;
        say(&format!("{} ({megabytes:.1} MB)", file.display()));
    }
    if options.tried {
        suite::try_packed(&program)?;
    }
    Ok(())
}

/// Returns the size of a file, which must not be larger than this.
fn is_small(file: &Path, max: u64) -> Result<u64> {
    let bytes = fs::metadata(file)?.len();
    ensure!(
        bytes <= max,
        "{} has {bytes} bytes, and may have {max}",
        file.display()
    );
    Ok(bytes)
}

// === impl Tree ===

impl Tree {
    fn make(program: &Path) -> Result<Self> {
        // The folder must not be below a home, since the unit hides homes unless its files are in one. Nobody
        // else on this machine can have made it before, or come into it, and put files into the packages.
        let folder = tempfile::Builder::new()
            .prefix("tidegate-dist-")
            .tempdir_in("/tmp")?;
        // What is made beside the tree is in that folder, too.
        let root = folder.path().join("tree");
        let told = output(Command::new(program).arg("--version"))?;
        let version = told.split_whitespace().last().context("a version")?.to_owned();
        let mut git = Command::new("git");
        git.args(["log", "-1", "--format=%ct %H"])
            .current_dir(crate::root());
        let told = output(&mut git)?;
        let (epoch, commit) = told.trim().split_once(' ').context("a commit with its time")?;
        let tree = Self {
            _folder: folder,
            root,
            version,
            epoch: epoch.to_owned(),
            commit: commit.to_owned(),
        };
        tree.fill(program)?;
        Ok(tree)
    }

    fn fill(&self, program: &Path) -> Result<()> {
        let installed = self.path("usr/bin/tidegate")?;
        run(Command::new("strip").arg("-o").arg(&installed).arg(program))?;
        executable(&installed)?;
        self.describe(&installed)?;
        self.configure(&installed)?;
        let doc = "usr/share/doc/tidegate";
        fs::copy(root().join("LICENSE"), self.path(&format!("{doc}/copyright"))?)?;
        fs::copy(root().join("README.md"), self.path(&format!("{doc}/README.md"))?)?;
        for folder in ["docs", "docs/runbooks", "ops/prometheus", "ops/grafana"] {
            for file in fs::read_dir(root().join(folder))? {
                let file = file?.path();
                let name = file.file_name().context("a name")?.to_string_lossy().into_owned();
                if [".md", ".yml", ".json"].iter().any(|end| name.ends_with(end)) {
                    fs::copy(&file, self.path(&format!("{doc}/{folder}/{name}"))?)?;
                }
            }
        }
        let changelog = self.path(&format!("{doc}/changelog"))?;
        fs::copy(root().join("CHANGELOG.md"), &changelog)?;
        run(Command::new("gzip").arg("-9n").arg(&changelog))?;
        // The modes do not depend on the umask of the user who packs.
        run(Command::new("chmod").args(["-R", "u=rwX,go=rX"]).arg(&self.root))
    }

    /// Writes the manual pages and completions, which the program prints.
    fn describe(&self, program: &Path) -> Result<()> {
        let pages = self.path("usr/share/man/man1/tidegate.1")?;
        let pages = pages.parent().context("a folder")?;
        run(Command::new(program).args(["manual", "--to"]).arg(pages))?;
        let mut files = Vec::new();
        for page in fs::read_dir(pages)? {
            files.push(page?.path());
        }
        run(Command::new("gzip").arg("-9n").args(files))?;
        for (shell, file) in [
            ("bash", "usr/share/bash-completion/completions/tidegate"),
            ("zsh", "usr/share/zsh/vendor-completions/_tidegate"),
            ("fish", "usr/share/fish/vendor_completions.d/tidegate.fish"),
        ] {
            let text = output(Command::new(program).args(["completions", shell]))?;
            fs::write(self.path(file)?, text)?;
        }
        Ok(())
    }

    /// Writes a first configuration, the unit, and the user that it runs as.
    fn configure(&self, program: &Path) -> Result<()> {
        let config = self.path("etc/tidegate/tidegate.yml")?;
        let mut init = Command::new(program);
        init.args([
            "init",
            "--no-check",
            "--cluster",
            "http://127.0.0.1:9200",
            "--listen",
            "127.0.0.1:8000",
            "--data",
            "/var/lib/tidegate/data",
        ]);
        init.arg("--output").arg(&config).env_remove("TIDEGATE_CLUSTER");
        let done = init.output()?;
        ensure!(
            done.status.success(),
            "init: {}",
            String::from_utf8_lossy(&done.stderr)
        );
        let mut install = Command::new(program);
        install
            .args([
                "service", "install", "--print", "--run-as", "tidegate", "--config",
            ])
            .arg(&config);
        let unit = output(&mut install)?;
        // The unit is for the machine where the tree is `/`.
        let unit = unit.replace(&self.root.display().to_string(), "");
        let unit = unit.replace(
            "Written by `tidegate service install`.",
            "Of the package tidegate.",
        );
        fs::write(self.path("usr/lib/systemd/system/tidegate.service")?, unit)?;
        let user = "u tidegate - \"Tidegate\" /var/lib/tidegate\n";
        fs::write(self.path("usr/lib/sysusers.d/tidegate.conf")?, user)?;
        Ok(())
    }

    /// The commit's time, formatted for documents.
    fn time(&self) -> Result<String> {
        let mut date = Command::new("date");
        date.args(["--utc", "+%Y-%m-%dT%H:%M:%SZ"]);
        let told = output(date.arg(format!("--date=@{}", self.epoch)))?;
        Ok(told.trim().to_owned())
    }

    /// Returns the path of a file in the tree, and creates its folder.
    fn path(&self, file: &str) -> Result<PathBuf> {
        let path = self.root.join(file);
        fs::create_dir_all(path.parent().context("a folder")?)?;
        Ok(path)
    }

    /// Packs the tree without the package's own files, for machines without packages.
    fn archive(&self, to: &Path, compression: &str) -> Result<PathBuf> {
        let effort = if compression == "none" { "-1nf" } else { "-9nf" };
        let name = format!("tidegate-{}-linux-{}", self.version, std::env::consts::ARCH);
        let file = to.join(format!("{name}.tar.gz"));
        let packed = file.with_extension("");
        let mut pack = tar(&self.root, &packed, &self.epoch);
        pack.args(["--create", "--exclude=./DEBIAN"]);
        run(pack.arg(format!("--transform=s,^\\.,{name},")).arg("."))?;
        run(Command::new("gzip").arg(effort).arg(&packed))?;
        Ok(file)
    }
}

/// Returns a `tar` command for a folder. Its options fix everything that would otherwise depend on this
/// machine.
fn tar(folder: &Path, file: &Path, epoch: &str) -> Command {
    let mut tar = Command::new("tar");
    tar.args([
        "--sort=name",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
        "--format=gnu",
    ]);
    tar.arg(format!("--mtime=@{epoch}"));
    tar.arg("--file").arg(file).arg("--directory").arg(folder);
    tar
}

/// Lists the files below a folder, in order, by their relative paths.
fn files_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut find = Command::new("find");
    let told = output(find.arg(folder).args(["!", "-type", "d", "-printf", "%P\\n"]))?;
    let mut files: Vec<PathBuf> = told.lines().map(PathBuf::from).collect();
    files.sort();
    Ok(files)
}

fn sha256(file: &Path) -> Result<String> {
    let told = output(Command::new("sha256sum").arg(file))?;
    Ok(told.split_whitespace().next().context("a checksum")?.to_owned())
}

fn executable(file: &Path) -> Result<()> {
    Ok(fs::set_permissions(file, PermissionsExt::from_mode(0o755))?)
}

/// Runs a command, and returns what it prints.
fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {told}");
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_has_grown_is_refused_with_its_size() {
        let file = std::env::temp_dir().join(format!("tidegate-large-{}", std::process::id()));
        let sized = |bytes| fs::File::create(&file).and_then(|file| file.set_len(bytes));
        sized(PROGRAM_MAX).expect("a file");
        let largest = is_small(&file, PROGRAM_MAX).expect("it is not too large");
        sized(PROGRAM_MAX + 1).expect("a file");
        let refused = is_small(&file, PROGRAM_MAX).expect_err("it is too large");
        fs::remove_file(&file).expect("it is there");
        assert_eq!(largest, PROGRAM_MAX);
        let told = format!("has {} bytes, and may have {PROGRAM_MAX}", PROGRAM_MAX + 1);
        assert!(refused.to_string().contains(&told), "{refused}");
    }
}

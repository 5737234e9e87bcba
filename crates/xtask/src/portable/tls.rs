//! TLS for librdkafka out of the library that rustls uses: AWS-LC, whose interface is OpenSSL's. The crate
//! `aws-lc-sys` compiles its libcrypto; its libssl, which is in the crate's package too, is compiled here. So
//! the program has one such library in place of two.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result, ensure};

use crate::steps::run;
use crate::terminal::say;

/// AWS-LC as `Cargo.lock` has it.
pub(super) struct AwsLc {
    /// Its sources.
    source: PathBuf,
    /// What the names of libcrypto's functions begin with, which each version has its own of.
    prefix: String,
}

/// Tells `openssl-sys`, by which librdkafka's build asks for a library, which interface it gets. That crate
/// reads it, compiles its own declarations, which nothing uses, and links the library.
const VERSION: &str = "#define OPENSSL_VERSION_NUMBER 0x1010107fL\n";

/// Compiled beside libssl: where AWS-LC differs from OpenSSL in what librdkafka relies on.
const HOST: &str = include_str!("host.cc");

/// libssl needs neither the C++ library nor its run time.
const FLAGS: [&str; 9] = [
    "-xc++",
    "-std=c++14",
    "-Os",
    "-fPIC",
    "-fno-exceptions",
    "-fno-rtti",
    "-fvisibility=hidden",
    "-DNDEBUG",
    "-DBORINGSSL_IMPLEMENTATION",
];

// === impl AwsLc ===

impl AwsLc {
    pub(super) fn find() -> Result<Self> {
        let resolution = super::resolution()?;
        let packages = resolution["packages"]
            .as_array()
            .context("cargo names packages")?;
        let mut found = packages.iter().filter(|package| package["name"] == "aws-lc-sys");
        let (Some(package), None) = (found.next(), found.next()) else {
            anyhow::bail!("there is not one version of aws-lc-sys in Cargo.lock");
        };
        let manifest = package["manifest_path"].as_str().context("a manifest")?;
        let version = package["version"].as_str().context("a version")?;
        Ok(Self {
            source: Path::new(manifest).parent().context("a folder")?.to_owned(),
            prefix: format!("aws_lc_{}", version.replace('.', "_")),
        })
    }

    /// Returns the options of a compiler, as a shell reads them, by which librdkafka sees AWS-LC as OpenSSL.
    pub(super) fn instead(&self) -> String {
        let seen = self.seen().map(|option| format!("'{option}'"));
        let instead = "-DSSL_set1_host=tidegate_set1_host -DSSL_CTX_new=tidegate_ctx_new";
        format!("{} {instead}", seen.join(" "))
    }

    /// Returns the options of a compiler that is to see AWS-LC.
    fn seen(&self) -> [String; 3] {
        let from = self.source.display();
        [
            format!("-I{from}/generated-include"),
            format!("-I{from}/aws-lc/include"),
            format!("-DBORINGSSL_PREFIX={}", self.prefix),
        ]
    }

    /// Compiles libssl with the compilers of `tools`, unless these have done so before, and returns the
    /// folder that stands for an OpenSSL.
    pub(super) fn libssl(&self, tools: &Path) -> Result<PathBuf> {
        let folder = tools.join(format!("{}-ssl", self.prefix));
        let done = folder.join("made-by");
        let by = fs::read_to_string(tools.join("tidegate-c++"))? + &FLAGS.join(" ") + HOST + VERSION;
        if fs::read_to_string(&done).ok().as_deref() == Some(&by) {
            return Ok(folder);
        }
        let _ = fs::remove_dir_all(&folder); // of another compiler, if it is there
        let (lib, include) = (folder.join("lib"), folder.join("include/openssl"));
        fs::create_dir_all(&lib)?;
        fs::create_dir_all(&include)?;
        fs::write(include.join("opensslv.h"), VERSION)?;
        fs::write(include.join("opensslconf.h"), "")?;
        say("compiling AWS-LC's libssl ...");
        let objects = self.compile(tools, &lib)?;
        let mut pack = Command::new("ar");
        pack.arg("crsD").arg(lib.join("libssl.a")).args(&objects);
        run(&mut pack)?;
        for object in objects {
            fs::remove_file(object)?;
        }
        fs::write(done, by)?;
        Ok(folder)
    }

    /// Compiles each source of libssl, as many at once as there are cores.
    fn compile(&self, tools: &Path, to: &Path) -> Result<Vec<PathBuf>> {
        let folder = self.source.join("aws-lc/ssl");
        let list = fs::read_to_string(folder.join("CMakeLists.txt"))?;
        let sources = sources(&list);
        ensure!(
            !sources.is_empty(),
            "AWS-LC's list of libssl's sources has another form now"
        );
        let host = to.join("host.cc");
        fs::write(&host, HOST)?;
        let mut sources: Vec<PathBuf> = sources.iter().map(|name| folder.join(name)).collect();
        sources.push(host);
        let object = |source: &Path| Some(to.join(source.file_name()?).with_extension("o"));
        let next = AtomicUsize::new(0);
        let work = || -> Result<()> {
            while let Some(source) = sources.get(next.fetch_add(1, Ordering::Relaxed)) {
                let mut compile = Command::new(tools.join("tidegate-c++"));
                compile.args(FLAGS).args(self.seen()).arg("-c").arg(source);
                run(compile.arg("-o").arg(object(source).context("a name")?))?;
            }
            Ok(())
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
            let mut done = threads.into_iter().map(|thread| thread.join().expect("no panic"));
            done.try_for_each(|done| done)
        })?;
        Ok(sources.iter().filter_map(|source| object(source)).collect())
    }
}

/// Returns the sources that a list of CMake's names for the library `ssl`.
fn sources(list: &str) -> Vec<&str> {
    let named = list
        .lines()
        .map(str::trim)
        .skip_while(|line| *line != "add_library(");
    let named = named.skip(1).take_while(|line| *line != ")");
    named
        .filter(|line| line.ends_with(".cc") || line.ends_with(".c"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sources_of_libssl_are_read_and_its_tests_are_not() {
        let tests = "add_executable(\n  t\n  ssl_test.cc\n)\n";
        let list = format!("add_library(\n  ssl\n\n  bio_ssl.cc\n  ssl_decrepit.c\n)\n{tests}");
        assert_eq!(sources(&list), ["bio_ssl.cc", "ssl_decrepit.c"]);
    }

    #[test]
    fn the_package_of_aws_lc_has_the_sources_of_libssl() {
        let found = AwsLc::find().expect("it is in Cargo.lock");
        let list = found.source.join("aws-lc/ssl/CMakeLists.txt");
        let list = fs::read_to_string(list).expect("the package is complete");
        assert!(sources(&list).contains(&"ssl_lib.cc"), "{list}");
        assert!(found.prefix.starts_with("aws_lc_0_"), "{}", found.prefix);
    }
}

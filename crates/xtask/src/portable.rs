//! Builds the program for other machines than this one: it needs an old glibc and nothing else.
//!
//! Zig, which PyPI has, brings a C compiler and a linker that know each version of glibc; `cargo-zigbuild`
//! lets cargo use them. The TLS that librdkafka needs is also compiled and linked in. `./dev` installs both
//! tools.

mod tls;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use memchr::memmem;
use serde_json::Value;

use crate::steps::{cargo, run};
use crate::suite::metadata;
use crate::terminal::{Look, paint, say};
use tls::AwsLc;

/// The newest glibc whose functions may be used: that of 2018, which RHEL 8 and Debian 10 have.
const GLIBC_MAX: (u32, u32) = (2, 28);

/// The parts of glibc, which every machine has.
const LIBRARIES: [&str; 6] = [
    "libc.so.6",
    "libm.so.6",
    "libdl.so.2",
    "libpthread.so.0",
    "librt.so.1",
    "ld-linux-",
];

/// Builds the program with this profile, and returns its path.
///
/// # Errors
/// If the program does not compile, or needs more of a machine than it may.
pub(crate) fn build(profile: &str, features: &str) -> Result<PathBuf> {
    let what = format!("building tidegate ({profile}, for glibc {}) ...", glibc_max());
    say(&paint(Look::Bold, &what));
    run(&mut building(cargo(&[]), profile, features)?)?;
    built(profile)
}

/// Returns the path of the program once [`building`] has succeeded.
///
/// # Errors
/// If the program needs more of a machine than it may.
pub(crate) fn built(profile: &str) -> Result<PathBuf> {
    let program = crate::target().join(triple()).join(profile).join("tidegate");
    check(&program)?;
    let told = told_of_the_build(&fs::read(&program)?, &places()?);
    ensure!(
        told.is_empty(),
        "{} would be another one in another clone, or on another day: it contains {told:?}",
        program.display()
    );
    Ok(program)
}

/// Makes `cargo` build the program.
///
/// # Errors
/// If Zig is missing, or its wrappers cannot be written.
pub(crate) fn building(mut cargo: Command, profile: &str, features: &str) -> Result<Command> {
    ensure!(
        std::env::var_os("CARGO_ZIGBUILD_ZIG_PATH").is_some(),
        "there is no Zig, which programs for other machines are linked by: call ./dev, which fetches it"
    );
    let (glibc, triple) = (glibc_max(), triple());
    cargo.args(["zigbuild", "--locked", "--quiet", "--package", "cli"]);
    cargo.args([
        "--profile",
        profile,
        "--no-default-features",
        "--features",
        features,
    ]);
    cargo.arg("--target").arg(format!("{triple}.{glibc}"));
    let remapped = places()?;
    let remapped = remapped
        .iter()
        .map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display()));
    cargo.env(
        "CARGO_ENCODED_RUSTFLAGS",
        remapped.collect::<Vec<_>>().join("\x1f"),
    );
    // Zig's linker would strip it away.
    cargo.env("CARGO_PROFILE_RELEASE_DEBUG", "false");
    cargo.env("LIBSQLITE3_FLAGS", SQLITE.join(" "));
    let aws_lc = AwsLc::find()?;
    let tools = tools(&aws_lc)?;
    // Only builds with Kafka look for an OpenSSL.
    if features.contains("own-tls") {
        // No other library of the packer's is to be found first.
        let target = triple.to_uppercase().replace('-', "_");
        for name in ["DIR", "LIB_DIR", "INCLUDE_DIR", "LIBS", "STATIC"] {
            cargo.env_remove(format!("OPENSSL_{name}"));
            cargo.env_remove(format!("{target}_OPENSSL_{name}"));
        }
        cargo.env("OPENSSL_DIR", aws_lc.libssl(&tools)?);
        cargo.env("OPENSSL_LIBS", "ssl").env("OPENSSL_STATIC", "1");
    }
    let mut path = tools.into_os_string();
    if let Some(more) = std::env::var_os("PATH") {
        path.push(":");
        path.push(more);
    }
    cargo.env("PATH", path);
    // A linker that the caller has chosen would be taken in place of Zig's.
    cargo.env_remove(format!(
        "CARGO_TARGET_{}_LINKER",
        triple.replace('-', "_").to_uppercase()
    ));
    // Crates ask for the compiler of their target; librdkafka's own build asks for the compiler.
    for variable in ["CC".to_owned(), format!("CC_{}", triple.replace('-', "_"))] {
        cargo.env(variable, "tidegate-cc");
    }
    for variable in ["CXX".to_owned(), format!("CXX_{}", triple.replace('-', "_"))] {
        cargo.env(variable, "tidegate-c++");
    }
    Ok(cargo)
}

/// SQLite is built without what the console's store does not use: full-text search, R-trees, statistics of
/// pages and of samples.
const SQLITE: [&str; 6] = [
    "-USQLITE_ENABLE_FTS3",
    "-USQLITE_ENABLE_FTS3_PARENTHESIS",
    "-USQLITE_ENABLE_FTS5",
    "-USQLITE_ENABLE_RTREE",
    "-USQLITE_ENABLE_DBSTAT_VTAB",
    "-USQLITE_ENABLE_STAT4",
];

/// Returns what cargo resolves for the system that the program runs on.
///
/// # Errors
/// If `cargo metadata` fails.
pub(crate) fn resolution() -> Result<Value> {
    metadata(&["--filter-platform", &triple()])
}

fn triple() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

/// Makes a C and a C++ compiler in a folder for `PATH`. What they compile may not depend on the folders in
/// which that is done.
fn tools(aws_lc: &AwsLc) -> Result<PathBuf> {
    let folder = crate::target().join("zig");
    fs::create_dir_all(&folder)?;
    let mapped: Vec<String> = places()?
        .iter()
        .map(|(from, to)| format!("'-ffile-prefix-map={}={to}'", from.display()))
        .collect();
    for (name, verb) in [("tidegate-cc", "cc"), ("tidegate-c++", "c++")] {
        let file = folder.join(name);
        let text = WRAPPER
            .replace("VERB", verb)
            .replace(
                "TARGET",
                &format!("{}-linux-gnu.{}", std::env::consts::ARCH, glibc_max()),
            )
            .replace("MAPPED", &mapped.join(" "))
            .replace("AWS_LC", &aws_lc.instead());
        // The file is written only if it changes: C builds begin anew for a newer compiler.
        if fs::read_to_string(&file).ok().as_deref() != Some(&text) {
            fs::write(&file, text)?;
            fs::set_permissions(&file, PermissionsExt::from_mode(0o755))?;
        }
    }
    Ok(folder)
}

/// C is made small where it handles no documents: of librdkafka the requests that are rare, the mock brokers
/// and the tests that are always part of it. The log compresses with the first level of zstd, so the
/// strategies of other levels are left out. No panic goes through C, so C needs no tables to unwind by.
///
/// `DEP_OPENSSL_INCLUDE` is there while something is built that uses an OpenSSL, which is librdkafka: it sees
/// AWS-LC. Its build links shared libraries and trials also, which nothing runs, with libraries that are not
/// there.
///
/// C that records when it was compiled gets no time: Zig keeps what it has compiled, in all clones of a
/// machine, by its sources and options alone, and gives it out again with the time of an earlier commit.
///
/// `--undefined-version`: librdkafka's build also makes a shared library, whose list of functions names one
/// that exists only in its tests.
const WRAPPER: &str = r#"#!/bin/sh
# Zig is where a variable says; looking for it in Python first takes 0.1 s at each call.
export CARGO_ZIGBUILD_PYTHON_PATH=false
left=$# small=
while [ "$left" -gt 0 ]; do
    word=$1
    shift
    left=$((left - 1))
    case $word in
        rdkafka_admin.c|rdkafka_assign*.c|rdkafka_aux.c|rdkafka_background.c|rdkafka_c[egmo]*.c) small=-Os ;;
        rdkafka_event.c|rdkafka_feature.c|rdkafka_idempotence.c|rdkafka_interceptor.c|rdkafka_m[eo]*.c) small=-Os ;;
        rdkafka_offset.c|rdkafka_pattern.c|rdkafka_plugin.c|rdkafka_range_*.c|rdkafka_re*.c|rdkafka_ro*.c) small=-Os ;;
        rdkafka_s*.c|rdkafka_t[eox]*.c|rdregex.c|rdunittest.c|cJSON.c|nanopb/*|opentelemetry/*) small=-Os ;;
        -lssl|-lcrypto) [ -z "$DEP_OPENSSL_INCLUDE" ] || continue ;;
    esac
    set -- "$@" "$word"
done
[ -z "$DEP_OPENSSL_INCLUDE" ] || set -- AWS_LC "$@"
exec cargo-zigbuild zig VERB -- -fno-sanitize=all -target TARGET -Wl,--undefined-version -ffunction-sections -fdata-sections \
    -Wno-builtin-macro-redefined '-D__DATE__=""' '-D__TIME__=""' \
    -fno-asynchronous-unwind-tables -fno-unwind-tables -DZSTD_EXCLUDE_DFAST_BLOCK_COMPRESSOR \
    -DZSTD_EXCLUDE_GREEDY_BLOCK_COMPRESSOR -DZSTD_EXCLUDE_LAZY_BLOCK_COMPRESSOR \
    -DZSTD_EXCLUDE_LAZY2_BLOCK_COMPRESSOR -DZSTD_EXCLUDE_BTLAZY2_BLOCK_COMPRESSOR \
    -DZSTD_EXCLUDE_BTOPT_BLOCK_COMPRESSOR -DZSTD_EXCLUDE_BTULTRA_BLOCK_COMPRESSOR MAPPED "$@" $small
"#;

fn glibc_max() -> String {
    format!("{}.{}", GLIBC_MAX.0, GLIBC_MAX.1)
}

/// Returns the folders of sources, and their names in the program.
fn places() -> Result<Vec<(PathBuf, &'static str)>> {
    let mut places = vec![(crate::root(), "/tidegate")];
    let home = match (std::env::var_os("CARGO_HOME"), std::env::home_dir()) {
        (Some(home), _) => PathBuf::from(home),
        (None, Some(home)) => home.join(".cargo"),
        (None, None) => bail!("neither CARGO_HOME nor HOME says where crates are"),
    };
    for source in fs::read_dir(home.join("registry/src"))? {
        places.push((source?.path(), "/crates"));
    }
    // A folder lists its files in any order.
    places[1..].sort();
    // What crates generate is here, which need not be below the sources. The last that fits is taken.
    places.push((std::path::absolute(crate::target())?, "/tidegate/target"));
    Ok(places)
}

/// Checks that a program runs on other machines: it must only need glibc's libraries, and only functions of
/// an old glibc.
///
/// # Errors
/// What the program needs but must not need.
pub(crate) fn check(program: &Path) -> Result<()> {
    let wants = libraries(&read_elf("--dynamic", program)?);
    let foreign = |name: &&String| !LIBRARIES.iter().any(|known| name.starts_with(known));
    let foreign: Vec<&String> = wants.iter().filter(foreign).collect();
    ensure!(
        foreign.is_empty(),
        "{} is linked with {foreign:?}",
        program.display()
    );
    let newest = newest_glibc(&read_elf("--version-info", program)?);
    let newest = newest.context("the program asks for no version of glibc")?;
    ensure!(
        newest <= GLIBC_MAX,
        "{} wants glibc {}.{}, and may want {}.{} at most",
        program.display(),
        newest.0,
        newest.1,
        GLIBC_MAX.0,
        GLIBC_MAX.1
    );
    Ok(())
}

/// Returns what a program tells of its build and of nothing else: folders of sources, and days on which C was
/// compiled, as in `Nov  6 2026`.
fn told_of_the_build(program: &[u8], places: &[(PathBuf, &str)]) -> Vec<String> {
    let places = places.iter().map(|(from, _)| from.display().to_string());
    let mut told: Vec<String> = places
        .filter(|place| memmem::find(program, place.as_bytes()).is_some())
        .collect();
    let days = program.windows(11).filter(|part| is_day(part));
    told.extend(days.map(|part| String::from_utf8_lossy(part).into_owned()));
    told
}

/// Whether this is a day as C's `__DATE__` has it.
fn is_day(part: &[u8]) -> bool {
    let months = b"JanFebMarAprMayJunJulAugSepOctNovDec";
    let digits = |bytes: &[u8]| bytes.iter().all(u8::is_ascii_digit);
    let [month @ .., b' ', tens, ones, b' ', _, _, _, _] = part else {
        return false;
    };
    (*tens == b' ' || tens.is_ascii_digit())
        && digits(&[*ones])
        && digits(&part[7..])
        && months.chunks_exact(3).any(|known| known == month)
}

/// Checks that a program has neither symbols nor debug information, as all of the profile `release`.
///
/// # Errors
/// The sections that stripping would have removed.
pub(crate) fn check_stripped(program: &Path) -> Result<()> {
    let left = symbols(&read_elf("--sections", program)?);
    ensure!(left.is_empty(), "{} is not stripped: {left:?}", program.display());
    Ok(())
}

/// Returns the version of glibc that a program needs, if it needs nothing else.
///
/// # Errors
/// If the program cannot be read.
pub(crate) fn glibc_wanted(program: &Path) -> Result<Option<(u32, u32)>> {
    let wants = libraries(&read_elf("--dynamic", program)?);
    let known = |name: &String| LIBRARIES.iter().any(|known| name.starts_with(known));
    match wants.iter().all(known) {
        true => Ok(newest_glibc(&read_elf("--version-info", program)?)),
        false => Ok(None),
    }
}

fn read_elf(what: &str, program: &Path) -> Result<String> {
    let told = Command::new("readelf")
        .args(["--wide", what])
        .arg(program)
        .output();
    let told = told.context("readelf (binutils)")?;
    let error = String::from_utf8_lossy(&told.stderr);
    ensure!(told.status.success(), "readelf {}: {error}", program.display());
    Ok(String::from_utf8_lossy(&told.stdout).into_owned())
}

/// Returns the sections for debuggers alone: `[32] .symtab  SYMTAB  0000000000000000 15616c8 16f020 18`.
fn symbols(told: &str) -> Vec<String> {
    let names = told
        .lines()
        .filter_map(|line| line.split_once(']')?.1.split_whitespace().next());
    let own =
        |name: &&str| *name == ".symtab" || name.starts_with(".debug_") && *name != ".debug_gdb_scripts";
    names.filter(own).map(str::to_owned).collect()
}

/// Returns the libraries that a program names: `0x1 (NEEDED)  Shared library: [libc.so.6]`.
fn libraries(told: &str) -> Vec<String> {
    let needed = told.lines().filter(|line| line.contains("(NEEDED)"));
    let name = |line: &str| Some(line.split_once('[')?.1.split_once(']')?.0.to_owned());
    needed.filter_map(name).collect()
}

/// Returns the newest version that a function requires: `Name: GLIBC_2.28  Flags: none  Version: 5`.
fn newest_glibc(told: &str) -> Option<(u32, u32)> {
    let versions = told.split("GLIBC_").skip(1).filter_map(|rest| {
        let version = rest.split_whitespace().next()?;
        let mut numbers = version.split('.').map(str::parse::<u32>);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    });
    versions.max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_wants_is_read() {
        let told = " 0x0001 (NEEDED)   Shared library: [libssl.so.3]\n 0x000c (INIT) 0x1000\n";
        assert_eq!(libraries(told), ["libssl.so.3"]);
        let told = "  0x10: Name: GLIBC_2.3.4  Flags: none\n  0x20: Name: GLIBC_2.27  Flags: none\n\
                    0x30: Name: GLIBC_2.4\n 0x40: Name: GCC_4.2.0";
        assert_eq!(newest_glibc(told), Some((2, 27)));
    }

    #[test]
    fn places_and_days_of_a_build_are_found_in_a_program() {
        let places = [(PathBuf::from("/sources/tidegate"), "/tidegate")];
        let found = |program: &[u8]| told_of_the_build(program, &places);
        assert_eq!(found(b"\0/sources/tidegate/src/a.c\0"), ["/sources/tidegate"]);
        assert_eq!(found(b"built on Nov  6 2026, 10:00:00"), ["Nov  6 2026"]);
        assert_eq!(found(b"Dec 31 1999"), ["Dec 31 1999"]);
        let harmless = b"/tidegate/src/a.c Now 16 2026 Nov 16 202x \x002026-11-16 May not 1 ";
        assert_eq!(found(harmless), [""; 0]);
    }

    #[test]
    fn a_program_that_is_not_stripped_is_refused() {
        let told = "  [ 1] .interp  PROGBITS 0\n  [30] .debug_gdb_scripts  PROGBITS 0\n\
                    [31] .debug_line  PROGBITS 0\n  [32] .symtab  SYMTAB 0\n  [33] .strtab  STRTAB 0\n";
        assert_eq!(symbols(told), [".debug_line", ".symtab"]);
        let tests = std::env::current_exe().expect("we run");
        assert!(check_stripped(&tests).is_err());
    }

    #[test]
    fn a_program_that_only_runs_here_is_refused() {
        let tests = std::env::current_exe().expect("we run");
        let refused = check(&tests)
            .expect_err("it is large, and linked for this machine")
            .to_string();
        assert!(
            ["is linked with", "wants glibc"]
                .iter()
                .any(|why| refused.contains(why)),
            "{refused}"
        );
    }
}

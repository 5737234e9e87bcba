"""The server's files: the JDK that runs it, and its artifacts from the Maven registry, unpacked once.

The servers are the projects' own builds: their "integ-test-zip" distributions,
which are artifacts of Maven Central, so that no download site is needed.
"""

import fcntl
import glob
import json
import os
import re
import shutil
import subprocess
import tempfile
import zipfile
from pathlib import Path
from xml.sax.saxutils import escape

HERE = Path(__file__).resolve().parent
DEPENDENCY_PLUGIN = ("org.apache.maven.plugins", "maven-dependency-plugin", "3.8.1")


class Failure(Exception):
    """Something to tell the user in one line."""


def say(text):
    try:
        print(text, flush=True)
    except BrokenPipeError:
        pass  # the reader is gone, but the work for it still has to be done


def version_tuple(version):
    return tuple(int(n) for n in re.findall(r"\d+", version)[:3])


# --------------------------------------------------------------------------
# Java


def java_version(home):
    """Return the feature release of the JDK at `home` (17, 25, ...), or 0."""
    try:
        release = Path(home, "release").read_text()
    except OSError:
        return 0
    match = re.search(r'JAVA_VERSION="(?:1\.)?(\d+)', release)
    return int(match.group(1)) if match else 0


def needed_java(engine, version):
    """Return the lowest and highest Java feature release that this server runs on."""
    v = version_tuple(version)
    if engine == "kafka":
        return 17, 99
    if engine == "opensearch":
        if v >= (3,):
            return 21, 99
        return (11, 21) if v >= (2,) else (8, 17)
    if v >= (9,):
        return 21, 99
    if v >= (8,):
        return 17, 25
    return (8, 17)


def find_java(engine, versions, asked):
    """Return the first of `versions` (comma-separated) that a JDK here can run, and that JDK."""
    if asked:
        return versions.split(",")[0], Path(asked)
    homes = [os.environ.get("CLUSTER_JAVA_HOME"), os.environ.get("JAVA_HOME")]
    on_path = shutil.which("java")
    if on_path:
        homes.append(str(Path(on_path).resolve().parent.parent))
    homes += sorted(glob.glob("/usr/lib/jvm/*"), reverse=True)
    homes = [home for home in homes if home and Path(home, "bin", "java").exists()]
    for version in versions.split(","):
        low, high = needed_java(engine, version)
        for home in homes:
            if low <= java_version(home) <= high:
                return version, Path(home)
    raise Failure(
        f"{engine} {version} needs a JDK from {low} to {high}; "
        "install one, or name it with --java or CLUSTER_JAVA_HOME"
    )


# --------------------------------------------------------------------------
# Fetching and unpacking the server


def maven_copy(wanted):
    """Copy artifacts from the Maven registry (or the local repository), in one run.

    `wanted` is a list of ("group:artifact:version:type", target folder).
    """
    if not shutil.which("mvn"):
        raise Failure("the mvn command is needed to fetch the server")
    items = "".join(
        "<artifactItem><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>"
        "<type>{}</type><outputDirectory>{}</outputDirectory></artifactItem>".format(
            *coordinates.split(":"), escape(str(folder)))
        for coordinates, folder in wanted)
    group, artifact, version = DEPENDENCY_PLUGIN
    with tempfile.TemporaryDirectory() as project:
        Path(project, "pom.xml").write_text(f"""<project>
          <modelVersion>4.0.0</modelVersion>
          <groupId>local</groupId><artifactId>fetch</artifactId><version>1</version>
          <packaging>pom</packaging>
          <build><plugins><plugin>
            <groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>
            <configuration><artifactItems>{items}</artifactItems></configuration>
          </plugin></plugins></build>
        </project>""")
        command = ["mvn", "-q", "-B", f"{group}:{artifact}:{version}:copy"]
        command += os.environ.get("CLUSTER_MAVEN_ARGS", "").split()
        result = subprocess.run(command, cwd=project, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if result.returncode:
        reason = next((l for l in result.stdout.splitlines() if "ERROR" in l), result.stdout)
        raise Failure(f"maven could not fetch {[c for c, _ in wanted]}: {reason[:400]}")


def fetch_zip(coordinates, target):
    """Fetch one zip artifact and unpack it into `target`."""
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        maven_copy([(coordinates, scratch)])
        (archive,) = Path(scratch).glob("*.zip")
        with zipfile.ZipFile(archive) as z:
            for entry in z.infolist():
                path = z.extract(entry, target)
                if entry.external_attr >> 16 & 0o111:
                    os.chmod(path, 0o755)


def modules_file(engine, version):
    return HERE / "modules" / f"{engine}-{version}.json"


def add_modules(engine, version, home):
    """Add the modules that this version's integ-test-zip leaves out.

    modules/ENGINE-VERSION.json names for each module its class, its jars (Maven
    coordinates) and the permissions its plugin-security.policy has to grant.
    """
    path = modules_file(engine, version)
    if not path.exists():
        return
    modules = json.loads(path.read_text())["modules"]
    maven_copy([(jar + ":jar", home / "modules" / name)
                for name, module in modules.items() for jar in module["jars"]])
    for name, module in modules.items():
        folder = home / "modules" / name
        (folder / "plugin-descriptor.properties").write_text("".join(
            f"{key}={value}\n" for key, value in {
                "name": name,
                "description": name,
                "version": version,
                f"{engine}.version": version,
                "java.version": "1.8",
                "classname": module["class"],
                "extended.plugins": ",".join(module.get("extends", [])),
                "has.native.controller": "false",
            }.items()))
        if module.get("permissions"):
            lines = "".join(f"  permission {p};\n" for p in module["permissions"])
            (folder / "plugin-security.policy").write_text("grant {\n" + lines + "};\n")


def install(engine, version, secure, dist):
    """Return the unpacked server's folder below `dist`, fetched if it is not there yet."""
    home = dist / f"{engine}-{version}{'-secure' if secure else ''}"
    dist.mkdir(parents=True, exist_ok=True)
    with open(dist / ".lock", "w") as lock:  # two clusters may want the same server at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / ".complete").exists():
            say(f"fetching {engine} {version} ...")
            unpack(engine, version, secure, home)
    return home


def unpack(engine, version, secure, home):
    shutil.rmtree(home, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(dir=home.parent))
    try:
        # Elasticsearch 6.8 has its whole distribution in the registry, with every module.
        kind = "zip" if engine == "elasticsearch" and version_tuple(version) < (7,) else "integ-test-zip"
        fetch_zip(f"org.{engine}.distribution.{kind}:{engine}:{version}:zip", scratch)
        (scratch / f"{engine}-{version}").rename(home)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    for tool in (home / "bin").glob("*"):
        if tool.is_file():
            tool.chmod(0o755)
    # These take much disk space, and no gateway test needs them: a geoip database, native code.
    for module in ("ingest-geoip", "x-pack-ml"):
        shutil.rmtree(home / "modules" / module, ignore_errors=True)
    add_modules(engine, version, home)
    if secure and engine == "opensearch":
        plugin = home / "plugins" / "opensearch-security"
        plugin.mkdir(parents=True)
        fetch_zip(f"org.opensearch.plugin:opensearch-security:{version}.0:zip", plugin)
        (plugin / "config").rename(home / "config" / "opensearch-security")
    (home / ".complete").touch()

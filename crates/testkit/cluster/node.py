"""One node of a cluster: its settings and files, its process, its answers over HTTP."""

import base64
import http.client
import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import time
from pathlib import Path

from server import Failure, say, version_tuple

UNPRIVILEGED_ID = 65534  # "nobody"; both servers refuse to run as root
USER, PASSWORD = "admin", "admin"
PASSWORD_HASH = "$2a$12$VcCDgh2NDk07JGN0rjGbM.Ad41qVR/YFJcgHp0UGns5JDymv..TOG"
# Further users of a secure Elasticsearch, with the same password: their indices, and what they may do there.
LIMITED = {
    "reader": ("*", "read"),
    "writer": ("rights-*", "write, create_index, manage"),
    "indexer": ("rights-*", "index"),
    "creator": ("rights-*", "create_doc"),
}


# --------------------------------------------------------------------------
# Configuration


def make_certificate(folder):
    """Make a certificate authority, and one certificate signed by it that every node uses.

    Two certificates, because a strict client (rustls) refuses an authority as a server's own.
    """
    if (folder / "node.pem").exists():
        return
    if not shutil.which("openssl"):
        raise Failure("the openssl command is needed for --secure")
    folder.mkdir(parents=True, exist_ok=True)
    ca, node = folder / "ca", folder / "node"
    extensions = folder / "node.ext"
    extensions.write_text(
        "basicConstraints=critical,CA:FALSE\nextendedKeyUsage=serverAuth,clientAuth\n"
        "subjectAltName=DNS:localhost,DNS:search-node,IP:127.0.0.1,IP:::1\n")
    for command in (
        f"req -x509 -newkey rsa:2048 -nodes -days 3650 -subj /CN=search-test-ca "
        f"-keyout {ca}.key -out {ca}.pem",
        f"req -newkey rsa:2048 -nodes -subj /CN=search-node -keyout {node}.key -out {node}.csr",
        f"x509 -req -in {node}.csr -CA {ca}.pem -CAkey {ca}.key -CAcreateserial -days 3650 "
        f"-extfile {extensions} -out {node}.pem",
    ):
        subprocess.run(["openssl", *command.split()], check=True, capture_output=True)
    (folder / "node.key").chmod(0o644)


def settings_for(state, number):
    """Return the node's settings, as a flat mapping."""
    engine, v = state["engine"], version_tuple(state["version"])
    elastic = engine == "elasticsearch"
    everyone = [f"node-{n}" for n in state["node_numbers"]]
    hosts = [f"127.0.0.1:{transport_port(state, n)}" for n in state["node_numbers"]]
    node = node_dir(state, number)
    settings = {
        "cluster.name": state["cluster_name"],
        "node.name": f"node-{number}",
        "path.data": str(node / "data"),
        "path.logs": str(node / "logs"),
        "network.host": "127.0.0.1",
        "http.port": http_port(state, number),
        "cluster.routing.allocation.disk.threshold_enabled": "false",
    }
    if elastic and v < (7,):
        settings["transport.tcp.port"] = transport_port(state, number)
        settings["discovery.zen.ping.unicast.hosts"] = hosts
        settings["discovery.zen.minimum_master_nodes"] = len(everyone) // 2 + 1
    else:
        settings["transport.port"] = transport_port(state, number)
        settings["discovery.seed_hosts"] = hosts
        if engine == "opensearch" and v >= (2,):
            settings["cluster.initial_cluster_manager_nodes"] = everyone
        else:
            settings["cluster.initial_master_nodes"] = everyone
    has_xpack = (Path(state["home"]) / "modules" / "x-pack-core").exists()
    if elastic and has_xpack:
        settings["xpack.security.enabled"] = str(state["secure"]).lower()
    if state["secure"]:
        if elastic:
            for layer in ("http", "transport"):
                prefix = f"xpack.security.{layer}.ssl."
                settings[prefix + "enabled"] = "true"
                settings[prefix + "key"] = "certs/node.key"
                settings[prefix + "certificate"] = "certs/node.pem"
                settings[prefix + "certificate_authorities"] = "certs/ca.pem"
                if layer == "transport":
                    settings[prefix + "verification_mode"] = "certificate"
        else:
            for layer in ("http", "transport"):
                prefix = f"plugins.security.ssl.{layer}."
                settings[prefix + "pemkey_filepath"] = "certs/node.key"
                settings[prefix + "pemcert_filepath"] = "certs/node.pem"
                settings[prefix + "pemtrustedcas_filepath"] = "certs/ca.pem"
            settings["plugins.security.ssl.http.enabled"] = "true"
            settings["plugins.security.ssl.transport.enforce_hostname_verification"] = "false"
            settings["plugins.security.nodes_dn"] = ["CN=search-node"]
            settings["plugins.security.authcz.admin_dn"] = ["CN=cluster-admin"]
            settings["plugins.security.allow_unsafe_democertificates"] = "true"
            settings["plugins.security.allow_default_init_securityindex"] = "true"
            settings["plugins.security.restapi.roles_enabled"] = ["all_access"]
    for setting in state["extra_settings"]:
        key, _, value = setting.partition("=")
        if key.startswith("node-"):  # node-2:key=value is for one node only
            only, _, key = key.partition(":")
            if only != f"node-{number}":
                continue
        settings[key] = value
    return settings


def write_node(state, number):
    """Write the node's configuration; keep its data if there is any."""
    node, home = node_dir(state, number), Path(state["home"])
    config = node / "config"
    shutil.rmtree(config, ignore_errors=True)
    shutil.copytree(home / "config", config)
    for name in ("data", "logs", "tmp"):
        (node / name).mkdir(parents=True, exist_ok=True)
    (config / f"{state['engine']}.yml").write_text("".join(
        f"{key}: {json.dumps(value)}\n" for key, value in settings_for(state, number).items()))
    heap = state["heap"]
    options = config / "jvm.options"
    text = re.sub(r"(?m)^-Xm[sx].*$", "", options.read_text())
    # The stock file writes GC logs and heap dumps below the (shared) server folder.
    text = re.sub(r"(?m)^.*(gc\.log|HeapDumpPath|ErrorFile|GCLogFile|PrintGC|PrintTenuring).*$", "", text)
    # Not touching the whole heap at the start saves time, and memory that is never used.
    text += (f"\n-Xms{heap}\n-Xmx{heap}\n-XX:-AlwaysPreTouch\n"
             f"-XX:ErrorFile={node}/logs/hs_err_pid%p.log\n")
    if state["quick"]:
        text += "-XX:TieredStopAtLevel=1\n-XX:-UseG1GC\n-XX:+UseSerialGC\n"
    options.write_text(text + "\n".join(state["jvm_options"]) + "\n")
    if state["secure"]:
        (config / "certs").mkdir()
        for name in ("ca.pem", "node.pem", "node.key"):
            shutil.copy(Path(state["dir"]) / "certs" / name, config / "certs" / name)
        if state["engine"] == "elasticsearch":
            # The superuser, and users with few rights. They are in the file realm, which the server reads
            # again when it changes, since the published build cannot store users of its own.
            names = [USER, *LIMITED]
            (config / "users").write_text("".join(f"{name}:{PASSWORD_HASH}\n" for name in names))
            roles = [("superuser", USER), *((name, name) for name in LIMITED)]
            (config / "users_roles").write_text("".join(f"{role}:{name}\n" for role, name in roles))
            (config / "roles.yml").write_text("".join(
                f"{name}: {{indices: [{{names: ['{names}'], privileges: [{privileges}]}}]}}\n"
                for name, (names, privileges) in LIMITED.items()))
        else:
            users = config / "opensearch-security" / "internal_users.yml"
            users.write_text(
                '_meta:\n  type: "internalusers"\n  config_version: 2\n'
                f'{USER}:\n  hash: "{PASSWORD_HASH}"\n  reserved: false\n'
                '  backend_roles: ["admin"]\n')
    if os.geteuid() == 0:
        give_away(node)


def give_away(folder):
    for path in [folder, *folder.rglob("*")]:
        if not path.is_symlink():
            os.chown(path, UNPRIVILEGED_ID, UNPRIVILEGED_ID)


# --------------------------------------------------------------------------
# Where things are


def state_file(root):
    return root / "cluster.json"


def load(root):
    try:
        return json.loads(state_file(root).read_text())
    except FileNotFoundError:
        raise Failure(f"no cluster in {root}; start one with: up --dir {root}") from None


def save(state):
    path = state_file(Path(state["dir"]))
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(state, indent=2) + "\n")
    temporary.replace(path)


def node_dir(state, number):
    return Path(state["dir"]) / f"node-{number}"


def http_port(state, number):
    return state["base_port"] + number - 1


def transport_port(state, number):
    return state["transport_base_port"] + number - 1


def url(state, number):
    return f"http{'s' if state['secure'] else ''}://127.0.0.1:{http_port(state, number)}"


# --------------------------------------------------------------------------
# Processes


def process_is(pid, node):
    """Whether `pid` is a live server JVM of this node, and not a later process with the same id."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return str(node).encode() + b"/" in command and status.rpartition(")")[2].split()[0] != "Z"


def node_pid(state, number):
    """Return the node's server JVM, or None if it does not run."""
    node = node_dir(state, number)
    try:
        pid = int((node / "node.pid").read_text())
    except (OSError, ValueError):
        return None
    return pid if process_is(pid, node) else None


def spawn(state, number):
    """Start one node's JVM, detached; return at once."""
    node, home, engine = node_dir(state, number), Path(state["home"]), state["engine"]
    prefix = "OPENSEARCH" if engine == "opensearch" else "ES"
    pid_file = node / "node.pid"
    pid_file.unlink(missing_ok=True)
    environment = {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "HOME": str(node),
        "LANG": "C.UTF-8",
        f"{prefix}_PATH_CONF": str(node / "config"),
        f"{prefix}_JAVA_HOME": state["java"],
        "JAVA_HOME": state["java"],
        f"{prefix}_TMPDIR": str(node / "tmp"),
        "HOSTNAME": "localhost",
    }
    command = [str(home / "bin" / engine), "-p", str(pid_file)]
    if engine == "elasticsearch" and version_tuple(state["version"]) >= (8,):
        command.append("-d")  # else its launcher JVM stays around beside the server
    if os.geteuid() == 0:
        command = ["setpriv", f"--reuid={UNPRIVILEGED_ID}", f"--regid={UNPRIVILEGED_ID}",
                   "--clear-groups", "--", *command]
    with open(node / "logs" / "console.log", "ab") as log:
        return subprocess.Popen(command, cwd=home, env=environment, stdin=subprocess.DEVNULL,
                                stdout=log, stderr=log, start_new_session=True)


def stop(state, number, sig=signal.SIGTERM, patience=30.0):
    """Signal the node and wait until its process is gone; kill it at the end."""
    pid = node_pid(state, number)
    if pid is None:
        return
    node = node_dir(state, number)
    os.kill(pid, sig)
    deadline = time.monotonic() + patience
    while process_is(pid, node):
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            deadline += patience
        time.sleep(0.05)
    (node / "node.pid").unlink(missing_ok=True)


# --------------------------------------------------------------------------
# HTTP


def request(state, number, path, timeout=5.0):
    """GET `path` from one node: (status, parsed JSON), or None if it does not answer."""
    host, port = "127.0.0.1", http_port(state, number)
    headers = {}
    if state["secure"]:
        context = ssl.create_default_context(cafile=str(Path(state["dir"]) / "certs" / "ca.pem"))
        connection = http.client.HTTPSConnection(host, port, timeout=timeout, context=context)
        token = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        headers["Authorization"] = "Basic " + token
    else:
        connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        body = response.read()
        return response.status, json.loads(body) if body.startswith((b"{", b"[")) else None
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()


def wait_ready(state, numbers, size, deadline, launchers, color="green", wanted=lambda: True):
    """Wait until each of `numbers` answers and the cluster has `size` nodes and is `color`."""
    waiting = list(numbers)
    ranks = {"red": 0, "yellow": 1, "green": 2}
    while waiting:
        number = waiting[0]
        answer = request(state, number, "/_cluster/health")
        health = answer[1] if answer and answer[0] == 200 and answer[1] else {}
        if (health.get("number_of_nodes", 0) >= size
                and ranks.get(health.get("status"), -1) >= ranks[color]):
            waiting.pop(0)
            continue
        for n, launcher in launchers.items():
            code = launcher.poll()
            if node_pid(state, n) is None and code not in (None, 0):
                tail = (node_dir(state, n) / "logs" / "console.log").read_text(errors="replace")
                raise Failure(f"node-{n} exited with {code}:\n" + "\n".join(tail.splitlines()[-25:]))
        if not wanted():
            raise Failure("no longer wanted")
        if time.monotonic() > deadline:
            raise Failure(f"node-{number} is not {color} in a cluster of {size} in time; "
                          f"last health: {health or answer}; logs: {node_dir(state, number)}/logs")
        time.sleep(0.25)


def start_nodes(state, numbers, size, timeout, color="green", wanted=lambda: True):
    begun = time.monotonic()
    launchers = {n: spawn(state, n) for n in numbers}
    try:
        wait_ready(state, numbers, size, begun + timeout, launchers, color, wanted)
    except BaseException:
        for launcher in launchers.values():  # a group each; the pid file may not be there yet
            try:
                os.killpg(launcher.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        raise
    say(f"{color} with {size} nodes after {time.monotonic() - begun:.1f} s")

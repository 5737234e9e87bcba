#!/usr/bin/env python3
"""Start, share, stop and break a real OpenSearch or Elasticsearch cluster on this machine.

Every node is a JVM of its own, listening on the loopback address only, with its
own configuration, data and log folder below one cluster folder. See README.md
beside this file. Only Python's standard library is used.
"""

import argparse
import fcntl
import os
import re
import select
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from node import (PASSWORD, USER, load, make_certificate, node_dir, node_pid, request, save,
                  start_nodes, state_file, stop, url, write_node)
from server import Failure, find_java, install, java_version, say

DEFAULT_VERSION = {"opensearch": "3.8.0,2.19.4", "elasticsearch": "9.5.3,8.19.21"}
# The newest OpenSearch that has its security plugin in the same registry.
DEFAULT_SECURE_VERSION = {"opensearch": "2.19.4", "elasticsearch": "9.5.3,8.19.21"}


# --------------------------------------------------------------------------
# Commands


def up(args, wanted=lambda: True):
    root = args.dir
    if state_file(root).exists():
        old = load(root)
        if any(node_pid(old, n) for n in old["node_numbers"]):
            raise Failure(f"a cluster runs in {root} already; `down` stops it")
    secure = args.secure
    versions = args.version or (DEFAULT_SECURE_VERSION if secure else DEFAULT_VERSION)[args.engine]
    version, java = find_java(args.engine, versions, args.java)
    root.mkdir(parents=True, exist_ok=True)
    root.chmod(0o755)  # so that the unprivileged user that runs the nodes can pass through
    home = install(args.engine, version, secure, args.dist or root / "dist")
    state = {
        "dir": str(root), "home": str(home), "engine": args.engine, "version": version,
        "java": str(java), "secure": secure, "heap": args.heap,
        "cluster_name": args.name, "node_numbers": list(range(1, args.nodes + 1)),
        "base_port": args.base_port,
        "transport_base_port": args.transport_base_port or args.base_port + 100,
        "extra_settings": args.set, "jvm_options": args.jvm, "quick": args.quick,
    }
    if secure:
        make_certificate(root / "certs")
    for n in state["node_numbers"]:
        if not args.keep:
            shutil.rmtree(node_dir(state, n), ignore_errors=True)
        write_node(state, n)
    save(state)
    start_nodes(state, state["node_numbers"], args.nodes, args.timeout, wanted=wanted)
    for n in state["node_numbers"]:
        say(url(state, n))


def whole(root):
    """Whether a cluster runs in `root` with all its nodes."""
    if not state_file(root).exists():
        return False
    state = load(root)
    return all(node_pid(state, n) for n in state["node_numbers"])


def hold(args):
    """Share one cluster among processes: it runs as long as anyone holds it.

    Starts the cluster unless another holder did, says `ready`, and waits until its standard
    input ends: that happens however the process at the other end dies, kill -9 included. The
    last holder to leave stops the cluster. There are two locks: `start.lock` for the holder that
    starts or stops it, and `users.lock`, which all holders share.
    """
    for name in (signal.SIGINT, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)  # Ctrl-C is for the process that we serve
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    args.dir.mkdir(parents=True, exist_ok=True)

    def wanted():
        readable, _, _ = select.select([sys.stdin], [], [], 0)
        return not readable  # readable means ended: nobody writes to us

    with open(args.dir / "start.lock", "w") as starting, open(args.dir / "users.lock", "w") as users:
        try:
            fcntl.flock(starting, fcntl.LOCK_EX)
            if alone(users) and not whole(args.dir):
                down(args)  # what a crash may have left
                up(args, wanted)
            fcntl.flock(users, fcntl.LOCK_SH)
            fcntl.flock(starting, fcntl.LOCK_UN)
            say("ready")
            sys.stdin.read()
        finally:
            fcntl.flock(starting, fcntl.LOCK_EX)
            fcntl.flock(users, fcntl.LOCK_UN)
            if alone(users):
                down(args)


def alone(users):
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def down(args):
    try:
        state = load(args.dir)
    except Failure:
        say("nothing to stop")
        return
    running = [n for n in state["node_numbers"] if node_pid(state, n)]
    for n in running:  # all at once, so that none starts to take over another's shards
        os.kill(node_pid(state, n), signal.SIGCONT)  # a paused node would not notice
        os.kill(node_pid(state, n), signal.SIGTERM)
    for n in running:
        stop(state, n)
    if not args.keep:
        for n in state["node_numbers"]:
            shutil.rmtree(node_dir(state, n), ignore_errors=True)
        state_file(args.dir).unlink()
    if args.purge:
        shutil.rmtree(args.dir, ignore_errors=True)
    say(f"stopped {len(running)} nodes")


def resident_mib(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) // 1024


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def status(args):
    state = load(args.dir)
    health = None
    say(f"{state['engine']} {state['version']}, Java {java_version(state['java'])}, {state['dir']}")
    for n in state["node_numbers"]:
        pid = node_pid(state, n)
        if pid is None:
            say(f"node-{n}  down")
            continue
        answer = request(state, n, "/_cluster/health")
        if answer and answer[0] == 200:
            health = answer[1]
        say(f"node-{n}  {url(state, n)}  pid {pid}  {resident_mib(pid)} MiB  "
            f"{cpu_seconds(pid):.1f} CPU s  {'answers' if answer else 'does not answer'}")
    if health is None:
        say("cluster: no answer")
        sys.exit(3)
    say(f"cluster: {health['status']}, {health['number_of_nodes']} nodes, "
        f"{health['active_shards']} shards, {health['unassigned_shards']} unassigned")


def checked_node(state, number):
    if number not in state["node_numbers"]:
        raise Failure(f"there is no node {number}; there are {state['node_numbers']}")
    return number


def kill_node(args):
    state = load(args.dir)
    number = checked_node(state, args.node)
    if node_pid(state, number) is None:
        raise Failure(f"node-{number} does not run")
    stop(state, number, signal.SIGTERM if args.gently else signal.SIGKILL)
    say(f"node-{number} is {'stopped' if args.gently else 'killed'}")


def pause_node(args):
    state = load(args.dir)
    number = checked_node(state, args.node)
    pid = node_pid(state, number)
    if pid is None:
        raise Failure(f"node-{number} does not run")
    os.kill(pid, signal.SIGCONT if args.command == "resume-node" else signal.SIGSTOP)
    say(f"node-{number}: {args.command}")


def start_node(args):
    state = load(args.dir)
    number = checked_node(state, args.node)
    if node_pid(state, number):
        raise Failure(f"node-{number} runs already")
    write_node(state, number)
    size = sum(1 for n in state["node_numbers"] if n == number or node_pid(state, n))
    start_nodes(state, [number], size, args.timeout, args.wait)
    say(url(state, number))


def urls(args):
    state = load(args.dir)
    for n in state["node_numbers"]:
        say(url(state, n))


def main():
    default_dir = Path(tempfile.gettempdir()) / f"search-cluster-{os.getuid()}"
    parser = argparse.ArgumentParser(prog="cluster.py", description=__doc__.split("\n\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name, action, text):
        p = commands.add_parser(name, help=text, description=text)
        p.add_argument("--dir", type=lambda d: Path(d).resolve(), default=default_dir,
                       help="the cluster's folder (default: %(default)s)")
        p.set_defaults(action=action)
        return p

    def starting(name, action, text):
        p = command(name, action, text)
        p.add_argument("--engine", choices=sorted(DEFAULT_VERSION), default="opensearch")
        p.add_argument("--version", metavar="V[,V...]",
                       help="the first that a JDK here can run "
                            f"(default: {DEFAULT_VERSION}; with --secure: {DEFAULT_SECURE_VERSION})")
        p.add_argument("--nodes", type=int, default=3)
        p.add_argument("--base-port", type=int, default=9201, help="HTTP port of node 1")
        p.add_argument("--transport-base-port", type=int, help="default: the HTTP port + 100")
        p.add_argument("--heap", default="512m", help="each node's heap (default: %(default)s)")
        p.add_argument("--quick", action="store_true",
                       help="start faster, index slower: for functional tests, not for measuring")
        p.add_argument("--name", default="test-cluster", help="cluster.name")
        p.add_argument("--secure", action="store_true",
                       help=f"TLS and basic authentication, user {USER}, password {PASSWORD}")
        p.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                       help="a further setting; node-N:KEY=VALUE is for that node only")
        p.add_argument("--jvm", action="append", default=[], metavar="OPTION", help="a further JVM option")
        p.add_argument("--java", help="the JDK to use (default: one that fits this version)")
        p.add_argument("--dist", type=lambda d: Path(d).resolve(),
                       help="where servers are unpacked (default: dist in the cluster's folder)")
        p.add_argument("--timeout", type=float, default=240, help="seconds until green")
        p.set_defaults(keep=False, purge=False)
        return p

    starting("hold", hold, "start or share the cluster, until standard input ends")
    p = starting("up", up, "fetch the server if need be, start the nodes, wait until green")
    p.add_argument("--keep", action="store_true", help="keep data that `down --keep` left")

    p = command("down", down, "stop every node and remove its data")
    p.add_argument("--keep", action="store_true", help="keep configuration and data")
    p.add_argument("--purge", action="store_true", help="remove the unpacked servers too")

    command("status", status, "each node's process and the cluster's health")
    command("urls", urls, "print the nodes' URLs, one a line")

    p = command("kill-node", kill_node, "kill -9 one node")
    p.add_argument("node", type=int)
    p.add_argument("--gently", action="store_true", help="SIGTERM: an orderly shutdown")
    p = command("start-node", start_node, "start a node that is down, wait until it joined")
    p.add_argument("node", type=int)
    p.add_argument("--timeout", type=float, default=240)
    p.add_argument("--wait", choices=["red", "yellow", "green"], default="green",
                   help="the cluster health to wait for (default: %(default)s)")
    p = command("pause-node", pause_node, "SIGSTOP one node: it hangs, its connections stay open")
    p.add_argument("node", type=int)
    p = command("resume-node", pause_node, "SIGCONT a paused node")
    p.add_argument("node", type=int)

    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything begun is undone
    try:
        args.action(args)
    except Failure as failure:
        sys.exit(f"cluster.py: {failure}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Run real Kafka brokers (KRaft: they are their own controllers) on the loopback address, for as long as standard input is open.

The server is the project's own: its jars are artifacts of Maven Central, fetched once. When the brokers answer, the program
prints `ready HOST:PORT SCRAM MUTUAL CERTS`: the addresses of their listeners without TLS, separated by commas; of the first
broker, the port of a listener that requires an account (SASL_SSL) and of one that requires a certificate (SSL); and the folder
with the certificates. With one broker, topics have one replica; with several, Kafka's own topics have three.

The program reads commands from standard input: `kill` (-9), `start`, `pause`, `resume`, each for the first broker or with the
numbers of others (`kill 2 3`). It answers each command with a line.
"""

import argparse
import base64
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from node import make_certificate
from server import DEPENDENCY_PLUGIN, Failure, find_java, say

VERSION = "4.1.0"
CLUSTER_ID = base64.urlsafe_b64encode(b"tidegate-test-12").decode().rstrip("=")
ACCOUNT = "tidegate", "between-the-tides"
TEMPLATE = "formatted-with-accounts"
JVM = ["-Xms96m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]


def install(dist):
    """Return the folder with the server's jars and a formatted storage folder, fetched if it is not there yet."""
    home = dist / f"kafka-{VERSION}"
    dist.mkdir(parents=True, exist_ok=True)
    with open(dist / ".kafka-lock", "w") as lock:  # two tests may want it at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / ".complete").exists():
            shutil.rmtree(home, ignore_errors=True)
            fetch(home / "libs")
            (home / ".complete").touch()
        if not (home / TEMPLATE).exists():
            storage_template(home)
    return home


def fetch(libs):
    if not shutil.which("mvn"):
        raise Failure("the mvn command is needed to fetch Kafka")
    group, artifact, version = DEPENDENCY_PLUGIN
    with tempfile.TemporaryDirectory() as project:
        Path(project, "pom.xml").write_text(f"""<project>
          <modelVersion>4.0.0</modelVersion>
          <groupId>local</groupId><artifactId>fetch</artifactId><version>1</version>
          <packaging>pom</packaging>
          <dependencies><dependency>
            <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{VERSION}</version>
          </dependency></dependencies>
        </project>""")
        command = ["mvn", "-q", "-B", f"{group}:{artifact}:{version}:copy-dependencies",
                   "-DincludeScope=runtime", f"-DoutputDirectory={libs}"]
        command += os.environ.get("CLUSTER_MAVEN_ARGS", "").split()
        result = subprocess.run(command, cwd=project, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if result.returncode:
        reason = next((l for l in result.stdout.splitlines() if "ERROR" in l), result.stdout)
        raise Failure(f"maven could not fetch Kafka {VERSION}: {reason[:400]}")


def properties(folder, certificates, number, all_ports):
    port, controller, scram, mutual = all_ports[number - 1]
    voters = ",".join(f"{node}@127.0.0.1:{ports[1]}" for node, ports in enumerate(all_ports, 1))
    replicas = min(len(all_ports), 3)
    module = "org.apache.kafka.common.security"
    user, password = ACCOUNT
    return "".join(f"{key}={value}\n" for key, value in {
        "process.roles": "broker,controller",
        "node.id": number,
        "controller.quorum.voters": voters,
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller},"
                     f"SCRAM://127.0.0.1:{scram},MUTUAL://127.0.0.1:{mutual}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port},SCRAM://127.0.0.1:{scram},MUTUAL://127.0.0.1:{mutual}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SCRAM:SASL_SSL,MUTUAL:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": certificates / "broker.pem",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": certificates / "ca.pem",
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN",
        "listener.name.scram.scram-sha-256.sasl.jaas.config": f"{module}.scram.ScramLoginModule required;",
        "listener.name.scram.scram-sha-512.sasl.jaas.config": f"{module}.scram.ScramLoginModule required;",
        "listener.name.scram.plain.sasl.jaas.config":
            f'{module}.plain.PlainLoginModule required user_{user}="{password}";',
        "log.dirs": folder,
        "auto.create.topics.enable": "false",
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": min(replicas, 2),
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 1000,  # so that tests see a gateway's end soon
        "num.network.threads": 2,
        "num.io.threads": 2,
        "log.cleaner.enable": "false",
        "min.insync.replicas": min(replicas, 2),
    }.items())


def java():
    return find_java("kafka", "17", None)[1] / "bin" / "java"


def classpath(home):
    return str(home / "libs" / "*")


def storage_template(home):
    """Make the storage that every new broker starts with: once, since it takes a JVM."""
    template = home / f"{TEMPLATE}.new"
    shutil.rmtree(template, ignore_errors=True)
    config = home / "format.properties"
    config.write_text(properties(template, home, 1, [range(9092, 9096)]))
    user, password = ACCOUNT
    accounts = [word for name in ("SCRAM-SHA-256", "SCRAM-SHA-512")
                for word in ("--add-scram", f"{name}=[name={user},password={password}]")]
    result = subprocess.run(
        [java(), *JVM, "-cp", classpath(home), "kafka.tools.StorageTool", "format",
         "--cluster-id", CLUSTER_ID, "--config", str(config), *accounts],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if result.returncode:
        raise Failure(f"Kafka's storage could not be formatted: {result.stdout[-800:]}")
    template.rename(home / TEMPLATE)


def free_ports():
    sockets = [socket.socket() for _ in range(4)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def make_it_of(storage, number):
    """The template is the first node's."""
    meta = storage / "meta.properties"
    lines = [line for line in meta.read_text().splitlines() if not line.startswith("directory.id=")]
    own = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")
    lines = [f"node.id={number}" if line.startswith("node.id=") else line for line in lines]
    meta.write_text("\n".join([*lines, f"directory.id={own}"]) + "\n")


class Broker:
    def __init__(self, home, folder, number, all_ports):
        self.home, self.folder = home, folder
        self.ports = all_ports[number - 1]
        self.port = self.ports[0]
        folder.mkdir()
        self.certificates = folder / "certificates"
        make_certificate(self.certificates)
        both = [(self.certificates / name).read_text() for name in ("node.key", "node.pem")]
        (self.certificates / "broker.pem").write_text("".join(both))
        storage = folder / "storage"
        shutil.copytree(home / TEMPLATE, storage)
        make_it_of(storage, number)
        self.config = folder / "server.properties"
        self.config.write_text(properties(storage, self.certificates, number, all_ports))
        self.process = None

    def begin(self):
        log = open(self.folder / "broker.log", "ab")
        self.process = subprocess.Popen(
            [java(), *JVM, "-cp", classpath(self.home), "kafka.Kafka", str(self.config)],
            cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def wait(self):
        until = time.monotonic() + 90
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                pass
            if self.process.poll() is not None or time.monotonic() > until:
                text = (self.folder / "broker.log").read_text(errors="replace")
                raise Failure(f"the broker did not start: {text[-2000:]}")
            time.sleep(0.05)

    def signal(self, number):
        if self.process and self.process.poll() is None:
            self.process.send_signal(number)

    def kill(self):
        self.signal(signal.SIGKILL)
        if self.process:
            self.process.wait()


def run(dist, count):
    for name in (signal.SIGINT, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)  # Ctrl-C is for the process that we serve
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    home = install(dist)
    folder = Path(tempfile.mkdtemp(prefix="tidegate-kafka-"))
    all_ports = [free_ports() for _ in range(count)]
    brokers = [Broker(home, folder / f"broker-{number}", number, all_ports) for number in range(1, count + 1)]
    try:
        for broker in brokers:
            broker.begin()
        for broker in brokers:
            broker.wait()
        _, _, scram, mutual = brokers[0].ports
        addresses = ",".join(f"127.0.0.1:{broker.port}" for broker in brokers)
        say(f"ready {addresses} {scram} {mutual} {brokers[0].certificates}")
        for line in sys.stdin:
            command, *numbers = line.split()
            chosen = [brokers[int(number) - 1] for number in numbers or [1]]
            act = {
                "kill": Broker.kill,
                "start": Broker.begin,
                "pause": lambda broker: broker.signal(signal.SIGSTOP),
                "resume": lambda broker: broker.signal(signal.SIGCONT),
            }[command]
            for broker in chosen:
                act(broker)
            if command == "start":
                for broker in chosen:  # of three, one alone is not ready
                    broker.wait()
            say(f"done {command}")
    finally:
        for broker in brokers:
            broker.kill()
        shutil.rmtree(folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(prog="kafka.py", description=__doc__.split("\n\n")[0])
    parser.add_argument("--dist", type=lambda d: Path(d).resolve(), required=True,
                        help="where the server is kept")
    parser.add_argument("--brokers", type=int, default=1, help="how many, all of one cluster")
    args = parser.parse_args()
    try:
        run(args.dist, args.brokers)
    except Failure as failure:
        sys.exit(str(failure))


if __name__ == "__main__":
    main()

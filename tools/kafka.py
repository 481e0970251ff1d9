"""A real Apache Kafka beside Penstock: the peer that tests and benchmarks compare with.

`python -m tools.kafka install` fetches it with Maven into the user's cache folder, once;
`python -m tools.kafka run` runs one in the foreground until Ctrl-C. In code, `running_kafka` is one
node in KRaft mode (broker and controller in one process) on free loopback ports with Kafka's own
default settings, and `java_tool` runs one of its command-line tools.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from tools.jars import JAVA_PACKAGE, Jars, PeerError, need

VERSION = "4.3.1"
START_TIMEOUT = 60.0
STOP_TIMEOUT = 20.0

# The binding must be of the slf4j line that Kafka is built with. `simple` and not `nop`, so that a
# broker that does not start can say why; both are silent at the levels used below.
SLF4J = ("org.slf4j", "slf4j-simple", "1.7.36")
_JACKSON = ("core", "annotations", "databind")
_JARS = Jars(
    f"kafka-{VERSION}",
    (
        ("org.apache.kafka", "kafka_2.13", VERSION),
        ("org.apache.kafka", "kafka-tools", VERSION),
        SLF4J,
    ),
)

OLDER = Jars(
    "kafka-tools-3.6.2",
    (
        ("org.apache.kafka", "kafka-tools", "3.6.2"),
        ("org.apache.kafka", "kafka-clients", "3.6.2"),
        ("org.apache.kafka", "kafka-server-common", "3.6.2"),
        ("net.sourceforge.argparse4j", "argparse4j", "0.7.0"),
        *(("com.fasterxml.jackson.core", f"jackson-{name}", "2.13.5") for name in _JACKSON),
        ("org.slf4j", "slf4j-api", "1.7.36"),
        SLF4J,
    ),
    transitive=False,
)
"""A client of 2024 with two tools: many programs have one as old, which reads less than today's."""

# What Kafka's own start script gives to the JVM: a comparison with anything else would be unfair.
_BROKER_JVM = (
    "-server",
    "-Xms1g",
    "-Xmx1g",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)


KafkaError = PeerError


# ---- a broker as a process -------------------------------------------------------------------


@dataclass(frozen=True)
class BrokerProcess:
    """A running broker and what the kernel knows about it; Kafka here, Penstock in benchmarks."""

    bootstrap: str
    """host:port for clients."""
    pid: int
    start_seconds: float
    """From starting the process until a client got metadata."""

    def cpu_seconds(self) -> float:
        """Processor time used so far, user and system, of the broker and its child processes."""
        ticks = 0
        for pid in _family(self.pid):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                # The name in field 2 may hold spaces; everything after its bracket is numbers.
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                # utime and stime, and the same of children that have ended and been waited for.
                ticks += sum(int(field) for field in fields[11:15])
        return ticks / os.sysconf("SC_CLK_TCK")

    def rss_bytes(self) -> int:
        """Resident memory now, of the broker and its child processes."""
        pages = 0
        for pid in _family(self.pid):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Take no processor time within the block. For some seconds: after nine Kafka fences itself."""
        for pid in (family := _family(self.pid)):
            _signal(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in family:
                _signal(pid, signal.SIGCONT)


KafkaProcess = BrokerProcess


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # a child may have ended
        os.kill(pid, number)


def _family(pid: int) -> list[int]:
    """The process and all its living descendants."""
    found = [pid]
    for parent in found:  # grows while it is walked
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                found += [int(child) for child in children.read_text().split()]
    return found


def metadata_answers(address: str, timeout: float = 1.0) -> bool:
    """Whether the broker at host:port answers a Metadata request for all topics with a broker.

    By hand and not through a client library: those wait between attempts for longer than what is
    measured with this.
    """
    host, _, port = address.rpartition(":")
    # Key 3, version 1, correlation id 7, client id "probe"; topics null, which means all of them.
    request = struct.pack(">hhih5si", 3, 1, 7, 5, b"probe", -1)
    try:
        with socket.create_connection((host, int(port)), timeout) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            with connection.makefile("rb") as stream:
                head = stream.read(12)
                if len(head) < 12:
                    return False
                size, correlation, brokers = struct.unpack(">iii", head)
                complete = len(stream.read(size - 8)) == size - 8
                return bool(complete and correlation == 7 and brokers > 0)
    except OSError:
        return False


def wait_for_metadata(
    process: subprocess.Popen[bytes], address: str, started: float, log: Path
) -> float:
    """Seconds from started (time.perf_counter) until metadata is answered.

    Raises:
        KafkaError: the process ended or did not answer in time; the message ends with its log.
    """
    while not metadata_answers(address):
        if process.poll() is not None:
            raise KafkaError(f"broker ended with status {process.returncode}:\n{tail(log)}")
        if time.perf_counter() - started > START_TIMEOUT:
            raise KafkaError(f"broker did not answer within {START_TIMEOUT:.0f} s:\n{tail(log)}")
        time.sleep(0.002)
    return time.perf_counter() - started


def end_process(process: subprocess.Popen[bytes]) -> bool:
    """Ask the process to stop; kill it, and return False, when it does not in time."""
    if process.poll() is not None:
        return True
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False
    return True


def tail(log: Path, lines: int = 20) -> str:
    """The last lines of a log, for the message of an error."""
    text = log.read_text(errors="replace") if log.exists() else ""
    return "\n".join(text.splitlines()[-lines:]) or "(nothing in its log)"


# ---- installing ------------------------------------------------------------------------------


def install() -> Path:
    """Fetch Kafka unless it is there, and Java and Maven with it where that is possible.

    Returns the folder of jars. Safe to call from several processes at once.
    """
    return _JARS.install()


# ---- running ---------------------------------------------------------------------------------


def class_path(jars: Jars = _JARS) -> str:
    """The Java class path of Kafka and its tools; installs them on first use."""
    return f"{jars.install()}/*"


def java_version() -> str:
    """The first line of what the Java runtime says about itself."""
    need("java", JAVA_PACKAGE)
    done = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True)
    return (done.stderr or done.stdout).splitlines()[0]


def java_command(main_class: str, *args: str, heap: str = "512m", jars: Jars = _JARS) -> list[str]:
    """What starts one of Kafka's Java programs."""
    command = ["java", f"-Xmx{heap}", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]
    return [*command, "-cp", class_path(jars), main_class, *args]


def java_tool(
    main_class: str,
    *args: str,
    input: str | None = None,  # named as in subprocess.run, which it is passed on to
    timeout: float = 120.0,
    check: bool = True,
    heap: str = "512m",
    jars: Jars = _JARS,
) -> subprocess.CompletedProcess[str]:
    """Run one of Kafka's Java programs, such as org.apache.kafka.tools.ProducerPerformance.

    Raises:
        KafkaError: check is set and the program failed; the message holds its output.
    """
    command = java_command(main_class, *args, heap=heap, jars=jars)
    done = subprocess.run(
        command, input=input, capture_output=True, text=True, timeout=timeout, check=False
    )
    if check and done.returncode:
        output = done.stdout + done.stderr
        raise KafkaError(f"{main_class} ended with status {done.returncode}:\n{output}")
    return done


@contextlib.contextmanager
def running_kafka(
    folder: Path,
    *,
    overrides: dict[str, str] | None = None,
    listeners: dict[str, int] | None = None,
    formatting: Sequence[str] = (),
) -> Iterator[KafkaProcess]:
    """A Kafka with its data in folder, formatted on first use; it ends with the block, always.

    Args:
        folder: Where data, configuration and log go; a second run continues with the same data.
        overrides: Broker settings in Kafka's names, such as message.max.bytes.
        listeners: Ports of more listeners on loopback, each named as its security protocol.
        formatting: Arguments of the tool that formats the folder, such as passwords to begin with.
    """
    jars = class_path()
    folder.mkdir(parents=True, exist_ok=True)
    port, controller_port = free_ports(2)
    config = folder / "server.properties"
    log = folder / "kafka.log"
    settings = _settings(folder, port, controller_port, listeners or {}) | (overrides or {})
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    cluster_id = _cluster_id(folder)
    java_tool(
        "kafka.tools.StorageTool",
        *("format", "--ignore-formatted", "-t", cluster_id, "-c", str(config)),
        *formatting,
    )
    command = ["java", *_BROKER_JVM, "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    command += ["-cp", jars, "kafka.Kafka", str(config)]
    with log.open("ab") as output:
        started = time.perf_counter()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            # Ctrl-C is for us: the broker must live until the code in the with block has ended.
            start_new_session=True,
        )
        try:
            bootstrap = f"127.0.0.1:{port}"
            seconds = wait_for_metadata(process, bootstrap, started, log)
            yield KafkaProcess(bootstrap, process.pid, seconds)
        finally:
            end_process(process)


def _settings(
    folder: Path, port: int, controller_port: int, more: dict[str, int]
) -> dict[str, str]:
    """One node on loopback; everything that is not about being one node stays Kafka's default."""
    ports = {"PLAINTEXT": port, "CONTROLLER": controller_port, **more}
    kinds = {name: name for name in ports} | {"CONTROLLER": "PLAINTEXT"}
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": ",".join(f"{name}://127.0.0.1:{number}" for name, number in ports.items()),
        "listener.security.protocol.map": ",".join(f"{a}:{b}" for a, b in kinds.items()),
        "log.dirs": str(folder / "data"),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
    }


def _cluster_id(folder: Path) -> str:
    """The id that the folder was formatted with, or a new one in Kafka's form."""
    kept = folder / "cluster-id"
    if not kept.exists():
        # A leading dash would be taken for an option by the tool that formats the folder.
        identity = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        kept.write_text(identity.replace("-", "A"))
    return kept.read_text()


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago; held together, so that they differ."""
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in held]


# ---- command line ----------------------------------------------------------------------------


def exit_on_sigterm() -> None:
    """Turn SIGTERM into SystemExit, so that context managers end the processes they started."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, leave)


def _run(folder: Path) -> None:
    with running_kafka(folder) as kafka:
        try:
            print(f"kafka listening on {kafka.bootstrap}", flush=True)
            print(f"ready (after {kafka.start_seconds:.1f} s; Ctrl-C ends it)", flush=True)
            while Path(f"/proc/{kafka.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                time.sleep(0.5)
        except KeyboardInterrupt:
            return
        raise KafkaError(f"Kafka ended by itself:\n{tail(folder / 'kafka.log')}")


def main() -> int:
    """Run the command line; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.kafka", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("install", help="fetch Kafka into the user's cache folder, once")
    run = commands.add_parser("run", help="run Kafka in the foreground until Ctrl-C")
    run.add_argument("--data", type=Path, help="keep its data here (default: thrown away)")
    options = parser.parse_args()
    exit_on_sigterm()
    try:
        if options.command == "install":
            print(f"Kafka {VERSION} is in {install()}")
        elif options.data:
            _run(options.data)
        else:
            with tempfile.TemporaryDirectory(prefix="penstock-kafka-") as folder:
                _run(Path(folder))
    except KafkaError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())

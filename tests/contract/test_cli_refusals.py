"""What the command line says of a broker that is there, and does not take or give records."""

from __future__ import annotations

import json
import resource
from pathlib import Path

from tests.support.commands import Commands
from tests.support.serving import serving

SEGMENT = "data/topics/orders-0/00000000000000000000.log"


def test_produce_tells_what_the_broker_answered(tmp_path: Path) -> None:
    """A disk that fails is made of a limit: the broker may write no file beyond a few bytes."""
    with serving(tmp_path) as broker:
        cli = Commands(broker.bootstrap)
        cli.ok("produce", "orders", "--create", data=b"one\n")
        size = (tmp_path / SEGMENT).stat().st_size
        resource.prlimit(broker.process.pid, resource.RLIMIT_FSIZE, (size + 10, size + 10))
        said = cli.refused(1, "produce", "orders", "--timeout", "1", data=b"two\n").splitlines()
    assert said[0].endswith("; 1 not acknowledged")
    assert said[1:] == [
        "error: cannot produce to orders: partition 0 was refused with KAFKA_STORAGE_ERROR: "
        "write failed: [Errno 27] File too large; restart the server"
    ]


def test_a_partition_out_of_service_is_named(tmp_path: Path) -> None:
    with serving(tmp_path) as broker:
        cli = Commands(broker.bootstrap)
        cli.ok("topics", "create", "orders", "--partitions", "2")
        cli.ok("produce", "orders", "--partition", "0", data=b"one\n")
        cli.ok("produce", "orders", "--partition", "0", data=b"two\n")
        assert broker.terminate() == 0
    with (tmp_path / SEGMENT).open("r+b") as segment:
        segment.truncate(100)
    with serving(tmp_path) as broker:
        cli = Commands(broker.bootstrap)
        args = ("produce", "orders", "--partition", "0", "--timeout", "1")
        said = cli.refused(1, *args, data=b"three\n").splitlines()
        trimmed = cli.refused(1, "topics", "trim", "orders", "--all", "--yes")
        described = json.loads(cli.ok("topics", "describe", "orders", "--json"))
    places = [(one["leader"], one["earliest"], one["latest"]) for one in described["partitions"]]
    assert places == [(None, None, None), (1, 0, 0)]
    assert "partition 0 is out of service; name the others with --partition" in trimmed
    assert said[1].startswith(
        "error: cannot produce to orders: partition 0 is out of service: no broker leads it; "
    )
    assert "`penstock log verify DIR`" in said[1]

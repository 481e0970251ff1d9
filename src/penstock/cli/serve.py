"""`penstock serve`."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli import output
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.config import Address

EXAMPLES: Final = (
    "\b\n"
    "Examples:\n"
    "  penstock serve --data ./data\n"
    "  penstock serve --data ./data --kafka 127.0.0.1:0     any free port\n"
    "  penstock serve --data ./data --kafka [::1]:9092      IPv6\n"
    "  penstock serve --data ./data --http off              no schema registry\n"
    "  penstock serve --data ./data --views sqlite:///views.db\n"
    "  penstock serve --data ./data --kafka 0.0.0.0:9092 --insecure \\\n"
    "      --advertise logs.example.org:9092                reached from elsewhere"
)

Views = Annotated[
    str | None,
    typer.Option(
        metavar="STORE",
        envvar="PENSTOCK_VIEWS",
        help="Answer questions to materialized views over HTTP, below /views: sqlite:///PATH or "
        "postgresql://USER@HOST:PORT/DATABASE.",
    ),
]

MemoryTopics = Annotated[
    str | None,
    typer.Option(
        metavar="BYTES",
        envvar="PENSTOCK_MEMORY_TOPICS",
        help="What topics of durability memory may hold together, such as 512MiB or 2GiB.  "
        "[default: a quarter of the memory]",
    ),
]


def _folder(text: str) -> Path:
    # Path("") is the present folder: a variable that is not set must not choose it.
    if not text:
        raise UsageError("cannot read --data ''", "it is empty", "name a folder, . for this one")
    return Path(text)


def serve(
    data: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            envvar="PENSTOCK_DATA",
            parser=_folder,
            help="Folder that holds everything; created if it does not exist.",
        ),
    ],
    kafka: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            envvar="PENSTOCK_KAFKA",
            help="Where Kafka clients connect; port 0 picks a free one.",
        ),
    ] = "127.0.0.1:9092",
    http: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT|off",
            envvar="PENSTOCK_HTTP",
            help="Where HTTP clients connect: the schema registry, /livez and /readyz.  "
            "[default: 127.0.0.1:8080, or off if that is taken]",
        ),
    ] = None,
    advertise: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            envvar="PENSTOCK_ADVERTISE",
            help="What clients are told to connect to.  [default: the address they reached]",
        ),
    ] = None,
    views: Views = None,
    memory_topics: MemoryTopics = None,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure",
            help="Accept an address that other machines can reach, although there is no access "
            "control yet.",
        ),
    ] = False,
) -> None:
    """Run a broker until it is told to stop (SIGTERM or Ctrl-C).

    Prints a line for each address it listens on, then `ready`. A second start on the same folder
    goes on where the first stopped.
    """
    from penstock.config import DEFAULT_HTTP_ADDRESS, Address, ServeSettings  # noqa: PLC0415 -- keeps --help fast

    settings = ServeSettings(
        data=data,
        kafka=Address.parse(kafka),
        advertise=Address.parse(advertise) if advertise else None,
        http=DEFAULT_HTTP_ADDRESS if http is None else _address_or_off(http),
        http_if_free=http is None,
        views=views,
        memory_topics=_bytes(memory_topics) if memory_topics else None,
        insecure=insecure,
    )
    settings.validate()
    # Until calm_garbage_collector: what an import makes stays, and looking at it takes time.
    gc.disable()
    # Last: it takes longer to import than a mistake in the options should take to be reported.
    from penstock.server.app import serve as run_server  # noqa: PLC0415

    run_server(settings, output.tell)


def _address_or_off(text: str) -> Address | None:
    from penstock.config import Address  # noqa: PLC0415 -- keeps --help fast

    return None if text == "off" else Address.parse(text)


def _bytes(text: str) -> int:
    from penstock.config import parse_bytes  # noqa: PLC0415 -- keeps --help fast

    return parse_bytes("--memory-topics", text)

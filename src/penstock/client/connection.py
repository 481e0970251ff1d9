"""Reaching a cluster, and its errors in our words.

kafka-python waits and retries until a deadline whatever the reason; `reach` therefore asks the
operating system first, which knows at once that nobody listens or that a name does not exist.
"""

from __future__ import annotations

import contextlib
import importlib
import socket
from collections.abc import Iterator
from typing import Any, Final

from penstock.client.security import OPEN, Security
from penstock.config import KAFKA_PORT, Address
from penstock.errors import (
    ConflictError,
    NotFoundError,
    PenstockError,
    StorageError,
    UnavailableError,
    UsageError,
)

CONNECT_SECONDS_MAX: Final = 5.0
REQUEST_SECONDS_MAX: Final = 30.0

# By the names of kafka-python's classes, most derived first; a class that is not here counts as
# its nearest base that is.
_KINDS: Final[dict[str, type[PenstockError]]] = {
    "KafkaTimeoutError": UnavailableError,
    "RequestTimedOutError": UnavailableError,
    "KafkaConnectionError": UnavailableError,
    "NodeNotReadyError": UnavailableError,
    "BrokerNotAvailableError": UnavailableError,
    "LeaderNotAvailableError": UnavailableError,
    "MetadataEmptyBrokerList": UnavailableError,
    "UnknownTopicOrPartitionError": NotFoundError,
    "UnknownTopicIdError": NotFoundError,
    "GroupIdNotFoundError": NotFoundError,
    "TopicAlreadyExistsError": ConflictError,
    "NonEmptyGroupError": ConflictError,
    "UnknownMemberIdError": ConflictError,
    "GroupSubscribedToTopicError": ConflictError,
    "InvalidTopicError": UsageError,
    "InvalidPartitionsError": UsageError,
    "InvalidReplicationFactorError": UsageError,
    "InvalidConfigurationError": UsageError,
    "InvalidRequestError": UsageError,
    "PolicyViolationError": UsageError,
    "MessageSizeTooLargeError": UsageError,
    "RecordListTooLargeError": UsageError,
    "InvalidTimestampError": UsageError,
    "KafkaStorageError": StorageError,
    "KafkaError": PenstockError,
}


def library(module: str = "kafka") -> Any:
    """A module of kafka-python, imported on first use, with our codecs in it."""
    from penstock.client.codecs import install  # noqa: PLC0415 -- it imports cramjam

    install()
    return importlib.import_module(module)


def parse_bootstrap(text: str) -> list[Address]:
    """Read one or more HOST:PORT, separated by commas.

    Raises:
        UsageError: one of them cannot be read.
    """
    return [Address.parse(part.strip()) for part in text.split(",")]


def reach(bootstrap: str, seconds: float = CONNECT_SECONDS_MAX) -> list[str]:
    """The addresses as the client library wants them, once one of them accepted a connection.

    Raises:
        UnavailableError: none of them did; the message says why the last did not.
    """
    addresses = parse_bootstrap(bootstrap)
    cause = ""
    for address in addresses:
        try:
            socket.create_connection((address.host, address.port), seconds).close()
        except TimeoutError:
            cause = f"no answer within {seconds:g} s"
        except socket.gaierror:
            cause = f"the name {address.host} is not known"
        except OSError as error:
            cause = (error.strerror or str(error)).lower()
        else:
            return [str(one) for one in addresses]
    remedy = "check the address (--bootstrap)"
    if all(one.is_loopback and one.port == KAFKA_PORT for one in addresses):
        remedy = "start a broker with `penstock serve --data DIR`, or name another with --bootstrap"
    raise UnavailableError(f"cannot reach {bootstrap}", cause, remedy)


@contextlib.contextmanager
def translated(operation: str) -> Iterator[None]:
    """Turn errors of the client library into ours.

    Raises:
        PenstockError: the client library raised one of its own.
    """
    try:
        yield
    except library("kafka.errors").KafkaError as error:
        raise translate(operation, error) from error


def translate(operation: str, error: Exception) -> PenstockError:
    """Our error for one of the client library."""
    for base in type(error).__mro__:
        if base.__name__ in _KINDS:
            kind = _KINDS[base.__name__]
            break
    else:
        kind = PenstockError
    return kind(operation, _cause(error), _remedy(kind, said=_said(error)))


def error_of_code(operation: str, code: int, message: str | None) -> PenstockError:
    """Our error for an error code of the protocol and what the broker said with it."""
    error = library("kafka.errors").for_code(code)
    return translate(operation, error(message) if message else error())


def _said(error: Exception) -> str:
    """What the broker, or the client library, said of this very case."""
    return " ".join(str(argument) for argument in error.args if argument is not None)


def _cause(error: Exception) -> str:
    described = getattr(error, "description", None) or getattr(error, "message", None)
    text = str(_said(error) or described or type(error).__name__)
    # One line, and without the full stop that would stand before our semicolon.
    return " ".join(text.split()).rstrip(".")


def _remedy(kind: type[PenstockError], *, said: str) -> str:
    if kind is UnavailableError:
        return "check that the broker runs and that its advertised address can be reached from here"
    if kind is StorageError and not said:
        # A broker that says what is wrong with its disk says what to do about it, too.
        return "check whether the broker's disk is full, and what its log says"
    return ""


def connect(client: str, bootstrap: str, operation: str, **settings: Any) -> Any:
    """A connected client of kafka-python.

    Args:
        client: KafkaAdminClient, KafkaProducer or KafkaConsumer.
        bootstrap: Addresses of the cluster.
        operation: What it is needed for, for the error.
        settings: In kafka-python's names.

    Raises:
        UnavailableError: nobody is there, or it does not speak the Kafka protocol.
        PenstockError: the client library refuses the settings.
    """
    servers = reach(bootstrap)
    kafka = library()
    with translated(operation):
        try:
            return getattr(kafka, client)(
                bootstrap_servers=servers,
                client_id="penstock-cli",
                bootstrap_timeout_ms=int(CONNECT_SECONDS_MAX * 1000),
                **({"kafka_client": without_auto_create} | settings),
            )
        except kafka.errors.KafkaTimeoutError as error:
            cause = (
                f"{bootstrap} gave no answer that a client could use in {CONNECT_SECONDS_MAX:g} s"
            )
            remedy = "check that it is a Kafka broker, and whether it wants TLS or a password"
            raise UnavailableError(operation, cause, remedy) from error


def without_auto_create(**settings: Any) -> Any:
    """The network half of a client, which must not create the topics that it asks for.

    kafka-python has a setting for this, but does not pass it on to what sends the requests: a reader
    of a topic that is deleted would create it again.
    """
    client = library("kafka.net.compat").KafkaNetClient(**settings)
    client.cluster.config["allow_auto_create_topics"] = False
    return client


@contextlib.contextmanager
def admin(bootstrap: str, operation: str, security: Security = OPEN) -> Iterator[Any]:
    """A connected KafkaAdminClient; its errors come out as ours.

    Raises:
        PenstockError: whatever went wrong while operation was attempted.
    """
    client = connect(
        "KafkaAdminClient",
        bootstrap,
        operation,
        request_timeout_ms=int(REQUEST_SECONDS_MAX * 1000),
        **security.library_settings(operation),
    )
    with translated(operation), contextlib.closing(client):
        yield client

"""TLS, passwords and certificates on a real Kafka that insists on them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tools.secure_kafka import PASSWORD, USER, SecureKafka, running_secure_kafka

from penstock.client.cluster import Cluster, Place
from penstock.client.security import RefusedError, Security
from penstock.client.topics import create_topic
from penstock.errors import UnavailableError
from penstock.spark import TopicSink, read, read_stream, write_stream


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    with running_secure_kafka(tmp_path_factory.mktemp("secure")) as running:
        create_topic(running.plaintext, "secured", partitions=2)
        yield running


def login(kafka: SecureKafka, **change: Any) -> Security:
    settings = {
        "protocol": "SASL_SSL",
        "mechanism": "PLAIN",
        "username": USER,
        "password": PASSWORD,
        "ca": str(kafka.ca),
    }
    return Security(**{**settings, **change})


def partitions(bootstrap: str, security: Security) -> list[Place]:
    with Cluster(bootstrap, "read", committed=True, security=security) as cluster:
        return cluster.partitions(["secured"])


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_passwords(kafka: SecureKafka, mechanism: str) -> None:
    security = login(kafka, mechanism=mechanism)
    assert len(partitions(kafka.passwords, security)) == 2
    with pytest.raises(RefusedError) as error:
        partitions(kafka.passwords, login(kafka, mechanism=mechanism, password="no-such-word"))
    assert f"127.0.0.1 does not let {USER} in" in str(error.value)
    assert "no-such-word" not in str(error.value)


def test_certificates_of_clients(kafka: SecureKafka) -> None:
    named = Security(protocol="SSL", ca=str(kafka.ca), certificate=str(kafka.client))
    assert len(partitions(kafka.certificates, named)) == 2
    with pytest.raises(RefusedError, match=r"whether it wants ssl.certificate.location"):
        partitions(kafka.certificates, Security(protocol="SSL", ca=str(kafka.ca)))


def test_whom_a_client_does_not_trust(kafka: SecureKafka) -> None:
    with pytest.raises(RefusedError, match=r"name its authority in ssl.ca.location"):
        partitions(kafka.passwords, login(kafka, ca=""))
    other = kafka.passwords.replace("127.0.0.1", "localhost")
    with pytest.raises(RefusedError, match="the certificate of localhost is not trusted"):
        partitions(other, login(kafka))
    assert len(partitions(other, login(kafka, check_host=False))) == 2


def test_the_wrong_protocol_is_said(kafka: SecureKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.client.cluster._RETRY_SECONDS", 0.0)
    with pytest.raises(UnavailableError, match=r"another security.protocol"):
        partitions(kafka.passwords, Security())


def test_a_query_reads_and_writes_and_keeps_its_password_to_itself(
    spark: SparkSession,
    kafka: SecureKafka,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    options = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.username": USER,
        "kafka.sasl.password": PASSWORD,
        "kafka.ssl.ca.location": str(kafka.ca),
    }
    caplog.set_level(logging.DEBUG)
    # At this level it writes down every word between Python and the JVM.
    caplog.set_level(logging.INFO, "py4j")
    create_topic(kafka.plaintext, "copied", partitions=1)
    sink = TopicSink(kafka.passwords, "secured", options=options)
    frame = spark.createDataFrame([(f"{n}",) for n in range(20)], "value string")
    sink.prepare(frame)
    sink.write(frame, 0, "query")
    frame = read_stream(
        spark, kafka.passwords, "secured", startingOffsets="earliest", **options
    ).select("value")
    query = write_stream(
        frame,
        TopicSink(kafka.passwords, "copied", options=options),
        checkpoint=str(tmp_path),
        trigger={"availableNow": True},
    )
    query.awaitTermination()
    frame.explain(extended=True)
    query.explain(extended=True)
    copied = read(spark, kafka.plaintext, "copied").collect()
    assert sorted(int(row.value) for row in copied) == list(range(20))
    wrong = {**options, "kafka.sasl.password": "no-such-word"}
    with pytest.raises(PySparkException) as error:
        read(spark, kafka.passwords, "secured", **wrong).count()
    assert f"does not let {USER} in" in str(error.value)
    kept = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    texts = [*capfd.readouterr(), caplog.text, str(error.value), repr(sink)]
    for secret in (PASSWORD, "no-such-word"):
        assert not any(secret.encode() in one for one in kept)
        assert not any(secret in one for one in texts)

"""Rows to a web server: what is sent, how it is signed, and what happens when it is refused."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from pyspark.sql import SparkSession
from tests.spark.sink_targets import Receiver, receiver

from penstock.errors import UnavailableError, UsageError
from penstock.spark import WebhookSink

SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef").decode()


@pytest.fixture
def server() -> Iterator[Receiver]:
    with receiver() as started:
        yield started


def test_pages_with_ids_that_stay(spark: SparkSession, server: Receiver) -> None:
    rows = spark.range(5).selectExpr("id", "4 - id AS place")
    for _ in range(2):
        sink = WebhookSink(server.url, rows_per_request=2, order_by=["place"], name="hook")
        sink.write(rows.repartition(2), 7, "query")
    ids = [headers["webhook-id"] for headers, _ in server.taken]
    assert ids[:3] == ids[3:]
    assert len(set(ids)) == 3
    assert all(one.startswith("query-") and one[:-1].endswith("-7-") for one in ids)
    bodies = [json.loads(body)["rows"] for _, body in server.taken]
    assert bodies[:3] == bodies[3:]
    assert [row["id"] for page in bodies[:3] for row in page] == [4, 3, 2, 1, 0]


def test_a_signature_that_the_receiver_can_check(spark: SparkSession, server: Receiver) -> None:
    WebhookSink(server.url, secret=SECRET, now=lambda: 1_700_000_000.9).write(
        spark.range(1), 0, "query"
    )
    ((headers, body),) = server.taken
    assert headers["webhook-timestamp"] == "1700000000"
    signed = f"{headers['webhook-id']}.1700000000.".encode() + body
    digest = hmac.new(b"0123456789abcdef", signed, hashlib.sha256).digest()
    assert headers["webhook-signature"] == "v1," + base64.b64encode(digest).decode()


def test_what_passes_is_tried_again_with_growing_pauses(
    spark: SparkSession, server: Receiver
) -> None:
    server.statuses = [503, 429, 500]
    slept: list[float] = []
    sink = WebhookSink(server.url, sleep=slept.append, chance=lambda: 1.0)
    sink.write(spark.range(1), 0, "query")
    assert len(server.asked) == 4
    assert len({headers["webhook-id"] for headers, _ in server.asked}) == 1
    assert slept == pytest.approx([0.4, 0.8, 1.6])


def test_a_refusal_names_server_and_status_and_nothing_secret(
    spark: SparkSession, server: Receiver
) -> None:
    server.statuses = [401]
    place = urlsplit(server.url).netloc
    sink = WebhookSink(f"http://me:p%40ss%3Aword@{place}/services/T0K3N?token=hidden")
    with pytest.raises(UsageError, match=f"http://{place}: it answered 401") as raised:
        sink.write(spark.range(1), 0, "query")
    for secret in ("me:", "word", "T0K3N", "hidden"):
        assert secret not in str(raised.value)
        assert secret not in sink.name
    login = base64.b64encode(b"me:p@ss:word").decode()
    assert server.asked[0][0]["authorization"] == f"Basic {login}"


def test_addresses_of_one_server_have_names_of_their_own() -> None:
    names = {WebhookSink(f"https://hooks.example/{path}").name for path in ("a", "b", "a")}
    assert len(names) == 2
    assert all(name.startswith("webhook:https://hooks.example-") for name in names)


def test_a_server_that_stays_away(spark: SparkSession) -> None:
    slept: list[float] = []
    sink = WebhookSink("http://127.0.0.1:1/hook", sleep=slept.append)
    with pytest.raises(UnavailableError, match="refused"):
        sink.write(spark.range(1), 0, "query")
    assert len(slept) == 7


def test_mistakes_are_refused_at_once(spark: SparkSession) -> None:
    with pytest.raises(UsageError, match="no address of http or https"):
        WebhookSink("ftp://somewhere/x")
    with pytest.raises(UsageError, match="the secret is not base64"):
        WebhookSink("http://x/", secret="whsec_?")
    with pytest.raises(UsageError, match="rows_per_request is less than 1"):
        WebhookSink("http://x/", rows_per_request=0)
    with pytest.raises(UsageError, match="there is no column at to order by; there are id"):
        WebhookSink("http://x/", order_by=["at"]).prepare(spark.range(1))

"""A small client of the registry's REST interface, for what Confluent's own client does not show."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any, NamedTuple

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"


class Answer(NamedTuple):
    """Status and body."""

    status: int
    body: Any
    content_type: str = CONTENT_TYPE

    @property
    def code(self) -> int:
        """Confluent's error code."""
        return int(self.body["error_code"])


class Rest:
    """Requests to one server."""

    def __init__(self, url: str) -> None:
        self.url = url

    def call(
        self, method: str, path: str, body: Any = None, *, content_type: str = CONTENT_TYPE
    ) -> Answer:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, method=method)
        if data is not None:
            request.add_header("Content-Type", content_type)
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                return self._answer(response)
        except urllib.error.HTTPError as error:
            with error:
                return self._answer(error)

    @staticmethod
    def _answer(response: Any) -> Answer:
        body = response.read()
        return Answer(response.status, json.loads(body), response.headers["Content-Type"])

    def get(self, path: str) -> Answer:
        return self.call("GET", path)

    def post(self, path: str, body: Any) -> Answer:
        return self.call("POST", path, body)

    def put(self, path: str, body: Any) -> Answer:
        return self.call("PUT", path, body)

    def delete(self, path: str) -> Answer:
        return self.call("DELETE", path)

    def register(self, subject: str, schema: Any, kind: str = "AVRO", **more: Any) -> Answer:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        body = {"schema": text, "schemaType": kind} | more
        return self.post(f"/subjects/{subject}/versions", body)


def record(*fields: tuple[str, Any], name: str = "Order", **more: Any) -> dict[str, Any]:
    """An Avro record; a field with a third part has it as its default."""
    made = []
    for field in fields:
        made.append({"name": field[0], "type": field[1]})
    return {"type": "record", "name": name, "fields": made} | more

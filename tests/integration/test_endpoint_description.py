"""An endpoint's description, end to end: API, Python client and command line."""

from __future__ import annotations

import pytest

from doorstep.client import Client, Invalid
from tests.support.commands import Remote
from tests.support.program import ADMIN_KEY, Program

URL = "https://shop.example/hook"


def test_it_is_empty_unless_given_can_be_changed_and_put_back(served: Program) -> None:
    plain = served.post("/v1/endpoints", {"name": "plain", "url": URL, "event_types": ["never"]}).json
    assert plain["description"] == ""
    path = f"/v1/endpoints/{plain['endpoint_id']}"
    assert served.request("PATCH", path, {"description": "Ask Ada."}).json["description"] == "Ask Ada."
    assert served.get(path).json["description"] == "Ask Ada."
    assert served.request("PATCH", path, {"description": None}).json["description"] == ""


def test_one_that_is_too_long_is_refused_and_named(served: Program) -> None:
    longest = {"event_types": ["never"], "name": "long", "url": URL, "description": "é" * 1_000}
    assert served.post("/v1/endpoints", longest).status == 201
    refused = served.post("/v1/endpoints", longest | {"description": "é" * 1_001})
    assert refused.status == 422
    assert refused.json["detail"] == "description: must be at most 1000 characters, got 1001"


def test_the_client_and_the_command_line_give_and_show_it(served: Program) -> None:
    remote = Remote(served)
    made = remote.json(
        "endpoints", "create", "described", URL, "--type", "never", "--description", "Orders of the shop"
    )
    assert made["description"] == "Orders of the shop"
    with Client(served.url, key=ADMIN_KEY) as client:
        assert client.endpoints.read(made["endpoint_id"]).description == "Orders of the shop"
        assert client.endpoints.change(made["endpoint_id"], description="Ask Ada").description == "Ask Ada"
        with pytest.raises(Invalid, match="description"):
            client.endpoints.change(made["endpoint_id"], description="a" * 1_001)
    assert "Ask Ada" in remote("endpoints", "show", made["endpoint_id"]).out
    changed = remote.json("endpoints", "update", made["endpoint_id"], "--reset", "description")
    assert changed["description"] == ""

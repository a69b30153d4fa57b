"""The blocking and the asyncio client have the same methods with the same signatures."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from doorstep.client import AsyncClient, Client
from doorstep.client.verbs import Each, Group, Verb


def verbs(client: Group[Any]) -> Iterator[tuple[str, Any]]:
    """Every public method of a client, with its dotted name."""
    groups = {"": client} | {f"{name}.": one for name, one in vars(client).items() if isinstance(one, Group)}
    for prefix, group in groups.items():
        for name, value in inspect.getmembers(type(group), lambda value: isinstance(value, Verb | Each)):
            yield f"{prefix}{name}", (value, getattr(group, name))


@pytest.fixture
def client() -> Iterator[Client]:
    with Client("http://127.0.0.1:1", "key") as it:
        yield it


async def test_both_clients_have_the_same_verbs(client: Client) -> None:
    async with AsyncClient("http://127.0.0.1:1", "key") as other:
        mine, theirs = dict(verbs(client)), dict(verbs(other))
        assert len(mine) > 50
        assert mine.keys() == theirs.keys()
        for name in mine:
            assert inspect.signature(mine[name][1]) == inspect.signature(theirs[name][1]), name


def test_every_verb_is_documented_and_does_not_show_self(client: Client) -> None:
    for name, (_, method) in verbs(client):
        assert method.__doc__, name
        assert (name.rpartition(".")[2].startswith("each")) == method.__doc__.startswith("Iterate over all"), name
        assert "self" not in inspect.signature(method).parameters, name


def test_the_client_loads_nothing_of_the_engine_and_the_receiver_not_even_the_client() -> None:
    heavy = "{'fastapi', 'pydantic', 'sqlalchemy', 'uvicorn', 'typer', 'pycurl', 'doorstep.app', 'doorstep.model'"
    for module, more in (("client", "cryptography"), ("receiver", "httpx2")):
        code = f"import sys, doorstep.{module}; print({heavy}, '{more}'}} & set(sys.modules))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout == "set()\n"

"""How `doorstep serve` exits when one of its parts fails."""

from __future__ import annotations

import asyncio

import pytest

from doorstep.app import Doorstep
from doorstep.cli import serve
from doorstep.cli.listening import listener
from doorstep.config import Settings


class Workers:
    """A fake worker process that is always already dead, so a supervisor would keep replacing it."""

    pid = 1

    def poll(self) -> int:
        return 1

    def terminate(self) -> None: ...
    def kill(self) -> None: ...


async def test_a_server_that_breaks_leaves_nothing_running_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("the server broke")

    monkeypatch.setattr(serve.WebServer, "serve", broken)
    monkeypatch.setattr(serve, "spawn", lambda *_: Workers())
    doorstep = Doorstep(Settings(database_url="memory://", workers=1, grace_seconds=0))
    with listener("127.0.0.1", 0) as listening, pytest.raises(RuntimeError, match="the server broke"):
        await serve.serve_until(doorstep, listening, asyncio.Event(), lambda _: None)
    assert asyncio.all_tasks() == {asyncio.current_task()}

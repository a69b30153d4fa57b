"""The workers in a browser: real processes appear automatically, and a killed process is marked as lost."""

from __future__ import annotations

import asyncio
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.async_api import expect

from doorstep.model.claim import WorkerEntry
from tests.console.conftest import Look
from tests.console.test_workers import WORKERS, lose
from tests.support.program import Program, running
from tests.support.scene import Scene, until


async def entry_of(scene: Scene, program: Program) -> WorkerEntry:
    async def there() -> bool:
        return any(one.pid == program.process.pid for one in await scene.doorstep.components.reader.workers())

    await until(there, "a worker's first beat")
    return next(one for one in await scene.doorstep.components.reader.workers() if one.pid == program.process.pid)


@pytest.mark.key_story
async def test_two_worker_processes_appear_and_one_that_is_killed_is_marked_as_lost(
    scene: Scene, look: Look, tmp_path: Path
) -> None:
    page = await look(WORKERS)
    settings = scene.doorstep.settings
    assert settings.secret_key is not None
    environment = {
        "DOORSTEP_DATABASE_URL": settings.database_url,
        "DOORSTEP_SECRET_KEY": settings.secret_key.get_secret_value(),
    }
    with ExitStack() as stack:
        programs = [stack.enter_context(running("worker", folder=tmp_path, environment=environment)) for _ in range(2)]
        first, second = [await entry_of(scene, program) for program in programs]
        for entry in (first, second):
            row = page.locator("tr", has_text=entry.name)
            await expect(row).to_contain_text("alive")
        await expect(page.locator("#live .figures")).to_contain_text("3processes")

        programs[0].signal(signal.SIGKILL)
        await asyncio.to_thread(programs[0].wait)
        await lose(scene, first)
        await expect(page.locator("tr", has_text=first.name)).to_contain_text("lost")
        await expect(page.locator("tr", has_text=second.name)).to_contain_text("alive")
        await expect(page.get_by_text("Its deliveries are not lost")).to_be_visible()

        assert await asyncio.to_thread(programs[1].stop) == 0
        await expect(page.locator("tr", has_text=second.name)).to_have_count(0)

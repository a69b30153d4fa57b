"""The workers over HTTP: which are alive, which are lost, how busy they are, and which users may see this."""

from __future__ import annotations

from msgspec.structs import replace

from doorstep.app import Doorstep
from doorstep.clock import SECOND
from doorstep.model.claim import LOST_AFTER, WorkerEntry
from doorstep.model.org import Role
from doorstep.stores.store import Delete
from tests.console.visiting import Console
from tests.support.api import Api
from tests.support.scene import Scene, until
from tests.support.shortcuts import put

WORKERS = "/console/workers"


async def present(scene: Scene, count: int) -> list[WorkerEntry]:
    """Wait until this many workers are in the register."""

    async def there() -> bool:
        return len(await scene.doorstep.components.reader.workers()) >= count

    await until(there, f"{count} workers in the register")
    return await scene.doorstep.components.reader.workers()


async def lose(scene: Scene, worker: WorkerEntry) -> WorkerEntry:
    """Make the worker look as if it had stopped reporting."""
    lost = replace(worker, seen_at=scene.clock.now() - LOST_AFTER - SECOND)
    await put(scene.doorstep.components.store, lost)
    return lost


async def test_the_process_that_answers_is_there_with_its_places_and_its_version(
    scene: Scene, console: Console
) -> None:
    (own,) = await present(scene, 1)
    shown = await console.get(WORKERS)
    assert own.name == scene.doorstep.components.worker_name
    assert f"{own.name} serves this page process {own.pid} on {own.host} alive 0 of 512" in shown.text
    assert "Lost 0 within a day" in shown.text
    assert "No process delivers" not in shown.text


async def test_its_name_is_the_one_in_the_attempt_log(scene: Scene) -> None:
    endpoint = await scene.endpoint()
    (delivery,) = await scene.send_to(endpoint)
    await scene.until_tried(delivery)
    (attempt,) = await scene.attempts(delivery)
    (own,) = await present(scene, 1)
    assert attempt.worker == own.name


async def test_a_second_process_appears_with_its_handlers_and_leaves_when_it_ends_in_order(
    scene: Scene, console: Console
) -> None:
    def with_a_handler(doorstep: Doorstep) -> None:
        doorstep.handler("order.*", name="ship<b>")(lambda event: None)

    second = await scene.open(with_a_handler)
    await present(scene, 2)
    name, shown = second.components.worker_name, await console.get(WORKERS)
    assert name in shown.text
    assert "ship<b>" in shown.text and "ship<b>" not in shown.source
    scene.doorsteps.remove(second)
    await second.close()
    assert name not in (await console.get(WORKERS)).text


async def test_a_lost_worker_is_marked_and_it_says_what_becomes_of_its_deliveries(
    scene: Scene, console: Console
) -> None:
    (own,) = await present(scene, 1)
    lost = await lose(scene, replace(own, name="web-2:17:aabbcc", host="web-2", pid=17))
    shown = await console.get(WORKERS)
    assert f"{lost.name} process 17 on web-2 lost" in shown.text
    assert f"{own.name} serves this page process {own.pid} on {own.host} alive" in shown.text
    assert "Its deliveries are not lost" in shown.text
    assert "at most 10 s after it was claimed" in shown.text.replace("\u2009", " "), "as long as a lease"


async def test_two_versions_at_once_are_pointed_out(scene: Scene, console: Console) -> None:
    (own,) = await present(scene, 1)
    await put(scene.doorstep.components.store, replace(own, name="older", version="0.0.9"))
    shown = await console.get(WORKERS)
    assert f"Versions 0.0.9 · {own.version} update the older ones" in shown.text


async def test_where_nobody_delivers_it_says_so(scene: Scene, console: Console) -> None:
    for worker in await present(scene, 1):
        await scene.doorstep.components.store.write([Delete(document=worker)])
    assert "No workers are running. Events are still accepted" in (await console.get(WORKERS)).text


async def test_a_viewer_of_the_default_organization_may_look(scene: Scene, viewer: Console) -> None:
    await present(scene, 1)
    assert (await viewer.get(WORKERS)).status == 200


async def test_other_organizations_see_neither_the_screen_nor_the_way_there(scene: Scene, api: Api) -> None:
    admin = await scene.doorstep.components.keys.authenticate(api.key)
    assert admin is not None
    org, _, key = await scene.doorstep.components.keys.create_org("other", admin)
    stranger = await Console(api.url).sign_in(key)
    assert WORKERS not in (await stranger.get("/console")).source
    shown = await stranger.get(WORKERS)
    assert shown.status == 403
    assert "only keys of the default organization may do that" in shown.text
    _, viewing = await scene.doorstep.components.keys.create(org.org_id, "v", Role.VIEWER, "test")
    assert (await (await Console(api.url).sign_in(viewing)).get(WORKERS)).status == 403

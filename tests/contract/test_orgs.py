"""R8.5, R11.2: organizations cannot see each other, and keys are found by their digest only."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest
from msgspec.structs import replace

from doorstep.clock import DAY, Instant
from doorstep.errors import Conflict, NotFound
from doorstep.model.action import AuditEntry
from doorstep.model.delivery import Delivery, DeliveryPayload
from doorstep.model.endpoint import Endpoint, RetryPolicy
from doorstep.model.event import EventView
from doorstep.model.listing import (
    AuditFilter,
    DeliveryAttempts,
    DeliveryHistory,
    EventDeliveries,
    KeyChecks,
    KeyNames,
    KeyPrefixes,
    KeysByDigest,
    OrgKeys,
    Orgs,
)
from doorstep.model.org import ApiKey, KeyCheck, Role
from doorstep.stores.store import Store
from tests.contract.scene import Scene
from tests.support.builders import an_org, new_id
from tests.support.shortcuts import put


def a_key(
    scene: Scene, digest: bytes = b"\x00" * 32, role: Role = Role.ADMIN, expires_at: Instant | None = None
) -> ApiKey:
    return ApiKey(
        key_id=new_id(),
        org_id=scene.org_id,
        name="first",
        role=role,
        prefix="dk_ab",
        digest=digest,
        created_at=scene.now,
        expires_at=expires_at,
    )


async def test_organizations_read_back_as_they_were_given_in_the_order_of_their_creation(store: Store) -> None:
    policies = {"policy": RetryPolicy((1, 2)), "policy_by_event_type": {"a.b": RetryPolicy(())}}
    made = [an_org(name="Ünïcode 🚚"), an_org(**policies)]
    for org in made:
        await put(store, org)
    assert await store.find(None, Orgs()) == made


async def test_an_organization_can_be_replaced(scene: Scene) -> None:
    renamed = replace(scene.org, name="New name")
    await put(scene.store, renamed)
    assert await scene.store.find(None, Orgs()) == [renamed]


async def test_another_organizations_things_are_not_found(scene: Scene) -> None:
    other = an_org()
    await put(scene.store, other)
    (submission,) = await scene.accept()
    delivery_id = submission.deliveries[0].delivery_id
    get, find = scene.store.get, scene.store.find
    reads: list[tuple[Callable[[UUID, UUID], Awaitable[object]], UUID]] = [
        (lambda org_id, uid: get(EventView, org_id, uid), submission.event.event_id),
        (lambda org_id, uid: get(Delivery, org_id, uid), delivery_id),
        (lambda org_id, uid: get(DeliveryPayload, org_id, uid), delivery_id),
        (lambda org_id, uid: get(Endpoint, org_id, uid), scene.endpoint.endpoint_id),
        (lambda org_id, uid: find(org_id, DeliveryAttempts(delivery_id=uid)), delivery_id),
        (lambda org_id, uid: find(org_id, DeliveryHistory(delivery_id=uid)), delivery_id),
    ]
    for read, subject in reads:
        await read(scene.org_id, subject)
        for org_id, asked in ((other.org_id, subject), (scene.org_id, new_id()), (new_id(), subject)):
            with pytest.raises(NotFound):
                await read(org_id, asked)
    assert await scene.store.find(other.org_id, EventDeliveries(event_id=submission.event.event_id)) == []


@pytest.mark.parametrize("role", Role)
async def test_a_key_is_found_by_its_digest(scene: Scene, role: Role) -> None:
    key = a_key(scene, role=role)
    await put(scene.store, key)
    await put(scene.store, a_key(scene, b"\x01" * 32))
    assert await scene.store.find(None, KeysByDigest(digest=key.digest)) == [key]
    assert await scene.store.find(None, KeysByDigest(digest=b"\x02" * 32)) == []


async def test_a_revoked_or_expired_key_is_still_found_and_says_so(scene: Scene) -> None:
    key = a_key(scene)
    await put(scene.store, key)
    ended = replace(key, revoked_at=scene.now, expires_at=scene.now + 1)
    await put(scene.store, ended)
    assert await scene.store.find(None, KeysByDigest(digest=key.digest)) == [ended]


async def test_two_keys_cannot_have_one_digest(scene: Scene, other_store: Store) -> None:
    key = a_key(scene)
    await put(scene.store, key)
    await put(scene.store, key)
    with pytest.raises(Conflict):
        await put(other_store, a_key(scene))
    assert await scene.store.find(scene.org_id, OrgKeys()) == [key]


async def test_of_concurrent_first_writers_of_one_key_one_is_kept_and_the_others_are_told(
    scene: Scene, other_store: Store
) -> None:
    made = [a_key(scene) for _ in range(10)]
    stores = [scene.store, other_store] * 5
    told = await asyncio.gather(
        *(put(store, key) for store, key in zip(stores, made, strict=True)), return_exceptions=True
    )
    assert [answer for answer in told if answer is not True and type(answer) is not Conflict] == []
    assert len(await scene.store.find(scene.org_id, OrgKeys())) == told.count(True) == 1


async def test_a_key_for_an_unknown_organization_is_refused(scene: Scene) -> None:
    with pytest.raises(NotFound):
        await put(scene.store, replace(a_key(scene), org_id=new_id()))


async def test_a_key_and_the_line_about_it_are_kept_together_or_not_at_all(scene: Scene) -> None:
    key = a_key(scene)
    line = AuditEntry(
        at=scene.now, org_id=scene.org_id, actor="ops", action="key.create", subjects=(str(key.key_id),), result="made"
    )
    await put(scene.store, key, entry=line)
    assert (await scene.store.page(scene.org_id, AuditFilter())).items == (line,)
    with pytest.raises(Conflict):
        await put(scene.store, a_key(scene), entry=line)
    assert len((await scene.store.page(scene.org_id, AuditFilter())).items) == 1


async def test_keys_are_called_by_their_names_where_their_visible_beginnings_tell_them_apart(scene: Scene) -> None:
    other = an_org()
    await put(scene.store, other)
    made = [("dsk_a", "marco", scene.org_id), ("dsk_a", "marco", scene.org_id), ("dsk_b", "lena", scene.org_id)]
    made += [("dsk_c", "one", scene.org_id), ("dsk_c", "two", scene.org_id), ("dsk_d", "theirs", other.org_id)]
    for number, (prefix, name, org_id) in enumerate(made):
        ended = {"revoked_at": scene.now} if name == "lena" else {}
        key = a_key(scene, bytes([number]) * 32)
        await put(scene.store, replace(key, prefix=prefix, name=name, org_id=org_id, **ended))
    asked = ["dsk_a", "dsk_b", "dsk_b", "dsk_c", "dsk_d", "doorstep", ""]
    assert dict(await scene.store.find(scene.org_id, KeyNames(prefixes=tuple(asked)))) == {
        "dsk_a": "marco",
        "dsk_b": "lena",
    }
    assert dict(await scene.store.find(scene.org_id, KeyNames(prefixes=()))) == {}
    assert dict(await scene.store.find(new_id(), KeyNames(prefixes=tuple(asked)))) == {}


async def test_the_keys_of_a_name_are_found_the_newest_first_and_no_more_than_are_wanted(scene: Scene) -> None:
    other = an_org()
    await put(scene.store, other)
    made = [("dsk_a", "marco", scene.org_id), ("dsk_b", "lena", scene.org_id), ("dsk_c", "marco", scene.org_id)]
    made += [("dsk_d", "marco", other.org_id), ("dsk_a", "marco", scene.org_id)]
    for number, (prefix, name, org_id) in enumerate(made):
        key = replace(a_key(scene, bytes([number]) * 32), prefix=prefix, name=name, org_id=org_id)
        await put(scene.store, replace(key, revoked_at=scene.now if prefix == "dsk_c" else None))
    assert await scene.store.find(scene.org_id, KeyPrefixes(name="marco", limit=10)) == ["dsk_a", "dsk_c"]
    assert await scene.store.find(scene.org_id, KeyPrefixes(name="marco", limit=1)) == ["dsk_a"]
    for org_id, name in ((scene.org_id, "Marco"), (scene.org_id, "dsk_a"), (new_id(), "marco")):
        assert await scene.store.find(org_id, KeyPrefixes(name=name, limit=10)) == []


# -- the check of the secret key ---------------------------------------------------------------------------


async def test_of_concurrent_first_starts_one_decides_which_secret_key_the_store_has(
    store: Store, other_store: Store
) -> None:
    assert await store.find(None, KeyChecks()) == []
    checks = [KeyCheck(fingerprint=number) for number in (2**63 - 1, -(2**63), 0, 1)]
    stores = [store, other_store] * 2
    told = await asyncio.gather(*(put(one, check, 0) for one, check in zip(stores, checks, strict=True)))
    assert told.count(True) == 1
    assert await store.find(None, KeyChecks()) == [checks[told.index(True)]]


async def test_the_check_of_the_secret_key_can_be_replaced(store: Store) -> None:
    assert await put(store, KeyCheck(fingerprint=1), 0)
    assert await put(store, KeyCheck(fingerprint=2))
    assert await store.find(None, KeyChecks()) == [KeyCheck(fingerprint=2)]


# -- revoking ----------------------------------------------------------------------------------------------


async def kept_keys(scene: Scene, *made: ApiKey) -> list[ApiKey]:
    """Store these keys, each with a different digest."""
    kept = [replace(key, digest=bytes([number]) * 32) for number, key in enumerate(made)]
    for key in kept:
        await put(scene.store, key)
    return kept


async def revoke(scene: Scene, key: ApiKey, store: Store | None = None, actor: str = "ops") -> ApiKey:
    line = AuditEntry(
        at=scene.now, org_id=key.org_id, actor=actor, action="key.revoke", subjects=(str(key.key_id),), result=""
    )
    return await (store or scene.store).revoke_key(key.org_id, key.key_id, scene.now, line)


async def test_a_revoked_key_is_kept_with_its_end_and_the_line_about_it(scene: Scene) -> None:
    _, key = await kept_keys(scene, a_key(scene), a_key(scene))
    revoked = await revoke(scene, key)
    assert (
        revoked
        == replace(key, revoked_at=scene.now)
        == next(iter(await scene.store.find(None, KeysByDigest(digest=key.digest))), None)
    )
    assert [line.action for line in (await scene.store.page(scene.org_id, AuditFilter())).items] == ["key.revoke"]


async def test_revoking_again_changes_nothing_and_writes_no_line(scene: Scene) -> None:
    _, key = await kept_keys(scene, a_key(scene), a_key(scene))
    first = await revoke(scene, key)
    scene.wait(DAY)
    assert await revoke(scene, key) == first
    assert len((await scene.store.page(scene.org_id, AuditFilter())).items) == 1


async def test_a_key_of_another_organization_cannot_be_revoked(scene: Scene) -> None:
    other = an_org()
    await put(scene.store, other)
    (key, _) = await kept_keys(scene, a_key(scene), a_key(scene))
    for org_id, key_id in ((other.org_id, key.key_id), (scene.org_id, new_id()), (new_id(), key.key_id)):
        with pytest.raises(NotFound):
            await revoke(scene, replace(key, org_id=org_id, key_id=key_id))
    assert await scene.store.find(None, KeysByDigest(digest=key.digest)) == [key]


async def test_a_change_of_an_organization_is_kept_with_the_line_about_it_or_not_at_all(scene: Scene) -> None:
    line = AuditEntry(
        at=scene.now, org_id=scene.org_id, actor="ops", action="slo.change", subjects=("x",), result="done"
    )
    await put(scene.store, replace(scene.org, name="renamed"), entry=line)
    with pytest.raises(NotFound):
        await put(scene.store, replace(scene.org, name="again"), entry=replace(line, org_id=new_id()))
    assert [one.name for one in await scene.store.find(None, Orgs())] == ["renamed"]
    assert (await scene.store.page(scene.org_id, AuditFilter())).items == (line,)


@pytest.mark.parametrize("role", sorted(set(Role) - {Role.ADMIN}))
async def test_keys_of_other_roles_can_all_be_revoked(scene: Scene, role: Role) -> None:
    for key in await kept_keys(scene, a_key(scene, role=role), a_key(scene, role=role)):
        assert (await revoke(scene, key)).revoked_at == scene.now


async def test_the_last_admin_key_stays_whatever_other_keys_there_are(scene: Scene) -> None:
    other = an_org()
    await put(scene.store, other)
    key, *_ = await kept_keys(
        scene,
        a_key(scene),
        a_key(scene, role=Role.OPERATOR),
        replace(a_key(scene), org_id=other.org_id),
        replace(a_key(scene), revoked_at=scene.now),
        a_key(scene, expires_at=scene.now),
    )
    with pytest.raises(Conflict, match="create another one first"):
        await revoke(scene, key)
    assert await scene.store.find(None, KeysByDigest(digest=key.digest)) == [key]
    assert (await scene.store.page(scene.org_id, AuditFilter())).items == ()


async def test_an_admin_key_can_be_revoked_if_another_lasts_as_long(scene: Scene) -> None:
    forever, long, short = await kept_keys(
        scene, a_key(scene), a_key(scene, expires_at=scene.now + 2 * DAY), a_key(scene, expires_at=scene.now + DAY)
    )
    with pytest.raises(Conflict):
        await revoke(scene, forever)  # in two days, no admin key would be left
    assert (await revoke(scene, short)).revoked_at is not None
    assert (await revoke(scene, long)).revoked_at is not None


async def test_an_expired_admin_key_can_be_revoked_by_itself(scene: Scene) -> None:
    (key,) = await kept_keys(scene, a_key(scene, expires_at=scene.now))
    assert (await revoke(scene, key)).revoked_at == scene.now


async def test_admins_who_revoke_each_other_at_once_leave_one_of_them(scene: Scene, other_store: Store) -> None:
    made = await kept_keys(scene, *(a_key(scene) for _ in range(6)))
    stores = [scene.store, other_store] * 3
    told = await asyncio.gather(
        *(revoke(scene, key, store) for store, key in zip(stores, made, strict=True)), return_exceptions=True
    )
    assert [type(answer) for answer in told].count(Conflict) == 1
    assert [key.revoked_at for key in await scene.store.find(scene.org_id, OrgKeys())].count(None) == 1
    assert len((await scene.store.page(scene.org_id, AuditFilter())).items) == 5

"""Endpoints declared in code: created once and kept up to date; an operator's change lasts until the code changes."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
import pytest

from doorstep.app import Doorstep
from doorstep.encryption import Sealer
from doorstep.engine.directory import Directory, Tuning
from doorstep.errors import Conflict, InvalidInput, NotFound
from doorstep.model.endpoint import Endpoint, EndpointState, RetryPolicy, Slo
from doorstep.operations.endpoint_rules import EndpointRules, form_from
from doorstep.operations.endpoints import Declaration, EndpointService
from doorstep.telemetry.facts import Telemetry
from doorstep.testing import FakeClock
from doorstep.transports.address_guard import AddressGuard
from tests.reference import ReferenceStore
from tests.support.builders import an_org, new_id
from tests.support.shortcuts import living_endpoints, put


class Program:
    """A program that is started several times on the same store."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = ReferenceStore(self.clock)
        self.org = an_org()
        sealer = Sealer(bytes(32))
        self.terms = EndpointRules(sealer, AddressGuard(()), 60.0)
        self.directory = Directory(self.store, sealer, Tuning())

    async def start(self, org_id: UUID | None = None, **fields: object) -> list[Endpoint]:
        """Start the program with one handler that has these fields; return the endpoints that exist afterwards."""
        described = {"handler": "ship", "event_types": ("order.*",)} | fields
        declaration = Declaration(form_from("ship", described), org_id or self.org.org_id)
        self.clock.advance(1)
        endpoints = EndpointService(self.store, self.directory, self.clock, self.terms, Telemetry())
        await endpoints.declare([declaration])
        return await living_endpoints(self.store)

    async def change(self, endpoint: Endpoint, **fields: object) -> None:
        """Change the endpoint as an operator or the engine would."""
        assert await put(self.store, msgspec.structs.replace(endpoint, **fields), endpoint.version)


@pytest.fixture
async def program() -> Program:
    made = Program()
    await put(made.store, made.org)
    return made


async def test_the_first_start_makes_the_endpoint_and_it_is_known_at_once(program: Program) -> None:
    assert await program.directory.has_org(program.org.org_id)
    (made,) = await program.start(policy="carrier", concurrency_max=3)
    assert (made.name, made.handler, made.event_types, made.concurrency_max) == ("ship", "ship", ("order.*",), 3)
    assert made.policy is not None and made.policy.name == "carrier"
    assert program.directory.endpoint(made.endpoint_id) == made


async def test_a_start_that_declares_the_same_writes_nothing(program: Program) -> None:
    (made,) = await program.start(policy=[1, 2], code_map={"77": "RATE_LIMIT"}, retry_on=["NOT_FOUND"])
    again = await program.start(policy=[1, 2], code_map={"77": "RATE_LIMIT"}, retry_on=["NOT_FOUND"])
    assert again == [made] and made.version == 1


async def test_what_the_code_changed_is_changed_and_what_it_says_no_more_is_back_to_its_default(
    program: Program,
) -> None:
    (made,) = await program.start(policy="quick", timeout_seconds=3)
    (changed,) = await program.start(policy="manual", event_types=("order.paid",))
    assert (changed.endpoint_id, changed.secrets, changed.version) == (made.endpoint_id, made.secrets, 2)
    assert changed.policy is not None and changed.policy.name == "manual"
    assert (changed.event_types, changed.timeout_seconds) == (("order.paid",), None)


async def test_what_an_operator_changed_stays_until_the_code_says_something_else(program: Program) -> None:
    (made,) = await program.start(timeout_seconds=3, policy="standard")
    await program.change(made, timeout_seconds=9, rate_per_second=5)
    (kept,) = await program.start(timeout_seconds=3, policy="standard")
    assert (kept.timeout_seconds, kept.rate_per_second) == (9, 5)
    program.terms = program.terms._replace(standard=RetryPolicy((7.0,), name="standard"))
    (changed,) = await program.start(timeout_seconds=3, policy="standard")
    assert (changed.timeout_seconds, changed.rate_per_second) == (3, None)
    assert changed.policy is not None and changed.policy.delays == (7.0,)


@pytest.mark.parametrize("state", [EndpointState.PAUSED, EndpointState.DISABLED])
async def test_one_that_was_stopped_stays_stopped_even_if_the_code_changes_it(
    program: Program, state: EndpointState
) -> None:
    (made,) = await program.start()
    await program.change(made, state=state, state_reason="the carrier asked for it")
    (kept,) = await program.start(timeout_seconds=3)
    assert (kept.state, kept.state_reason, kept.timeout_seconds) == (state, "the carrier asked for it", 3)


async def test_one_that_was_deleted_comes_back_as_another_endpoint_each_time(program: Program) -> None:
    seen: set[UUID] = set()
    for _ in range(3):
        (made,) = await program.start()
        assert made.endpoint_id not in seen
        seen.add(made.endpoint_id)
        await program.change(made, state=EndpointState.DELETED)


async def test_who_was_slower_finds_what_the_faster_made_and_adds_what_it_lacks(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process starts between our read and our write."""
    look, overtaken = program.store.get, []

    async def look_and_be_overtaken(kind: type[Any], org_id: UUID, key: UUID) -> Any:
        try:
            return await look(kind, org_id, key)
        except NotFound:
            if not overtaken:
                overtaken.append(True)
                await program.start(timeout_seconds=3)
            raise

    monkeypatch.setattr(program.store, "get", look_and_be_overtaken)
    (made,) = await program.start(timeout_seconds=4)
    assert overtaken and (made.timeout_seconds, made.version) == (4, 2)


async def test_the_same_name_in_two_organizations_is_two_endpoints(program: Program) -> None:
    other = an_org()
    await put(program.store, other)
    (first,) = await program.start()
    both = await program.start(other.org_id)
    assert {one.org_id for one in both} == {program.org.org_id, other.org_id} and first in both


async def test_what_cannot_work_is_refused_with_its_field_and_an_unknown_organization_is_told(
    program: Program,
) -> None:
    with pytest.raises(InvalidInput, match="timeout_seconds: must be from 0.1 to 60, got 61"):
        await program.start(timeout_seconds=61)
    with pytest.raises((NotFound, Conflict)):
        await program.start(new_id())
    assert not (await living_endpoints(program.store))


async def test_what_was_declared_before_there_were_targets_is_left_as_operators_changed_it(program: Program) -> None:
    """The expected hash is the one that 0.1.0 wrote for this declaration."""
    (made,) = await program.start(policy="quick", retry_on=("404",))
    assert made.declared == "62dea83854f90fc6"
    (targeted,) = await program.start(policy="quick", retry_on=("404",), slo=Slo(success=0.9))
    assert targeted.declared != made.declared and targeted.slo == Slo(success=0.9)


def test_what_is_not_known_of_an_endpoint_is_refused_with_what_is() -> None:
    with pytest.raises(InvalidInput, match="^timeout: is not a setting of an endpoint; use one of .*timeout_seconds"):
        form_from("ship", {"handler": "ship", "timeout": 3})


def test_a_decorator_without_its_parentheses_is_refused_instead_of_ignored() -> None:
    with pytest.raises(InvalidInput, match=r"event_types: must be text such as 'order\.\*', got <function"):
        Doorstep("memory://").handler(lambda event: None)  # type: ignore[arg-type]

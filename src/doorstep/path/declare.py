"""Before the first step: endpoints that a program declares in its code are made, or brought up to date.

Any number of processes may start at once. They agree because a declared endpoint's id follows from its name, and
because an endpoint that is as declared is not written.
"""

from __future__ import annotations

import contextlib
import hashlib
from typing import NamedTuple
from uuid import UUID, uuid5

import msgspec

from doorstep.clock import Clock
from doorstep.errors import Conflict, NotFound
from doorstep.model.endpoint import Endpoint, EndpointState
from doorstep.model.retry_policy import RetryPolicy
from doorstep.path.change import change_endpoint, create_endpoint
from doorstep.path.directory import Directory
from doorstep.path.enrol import EndpointForm, EndpointRules, amend, check, enrol, policy_from
from doorstep.policy.retry import BUILT_IN
from doorstep.stores.store import Store

_ACTOR = "program"
_DIGEST_CHARS = 16
_FROM_THE_START = frozenset(
    {"name", "url", "handler", "event_types", "policy", "policy_by_event_type", "timeout_seconds", "concurrency_max"}
    | {"rate_per_second", "headers", "retry_on", "give_up_on", "code_map", "circuit", "envelope", "batch", "signing"}
)
"""The settings that version 0.1.0 wrote into the digest, used or not."""


class Declaration(NamedTuple):
    """An endpoint as the code of a program describes it; its name tells it from others of the organization."""

    form: EndpointForm
    org_id: UUID


async def declare(
    store: Store, directory: Directory, clock: Clock, rules: EndpointRules, declarations: list[Declaration]
) -> None:
    """Make the store's endpoints agree with the code.

    What operators did to them stays: a pause, a new secret, and any field, until the code says something else than when
    it was last written.
    """
    for one in declarations:
        await _declare(store, clock, rules, one)
    if declarations:
        await directory.reload()


async def _declare(store: Store, clock: Clock, rules: EndpointRules, declaration: Declaration) -> None:
    form, org_id = declaration
    generation = 0
    while True:
        endpoint_id = uuid5(org_id, f"{form.name}/{generation}")
        try:
            known = await store.endpoint(org_id, endpoint_id)
        except NotFound:
            endpoint, _ = enrol(form, rules, endpoint_id=endpoint_id, org_id=org_id, now=clock.now())
            with contextlib.suppress(Conflict):  # another process was faster: look at what it made
                await create_endpoint(store, _marked(endpoint, form, rules), _ACTOR)
            continue
        if known.state is not EndpointState.DELETED:
            await _bring_up_to_date(store, clock, rules, known, form)
            return
        generation += 1  # someone deleted it, and the code wants it again: another endpoint, with its own history


async def _bring_up_to_date(
    store: Store, clock: Clock, rules: EndpointRules, known: Endpoint, form: EndpointForm
) -> None:
    wanted = {name: getattr(form, name) for name in EndpointForm.__struct_fields__ if name != "signing"}

    def changed(endpoint: Endpoint) -> Endpoint | None:
        if endpoint.declared == _digest(form, rules.standard):
            return None
        return _marked(amend(endpoint, wanted, rules), form, rules)

    await change_endpoint(
        store, known.org_id, known.endpoint_id, changed, actor=_ACTOR, action="endpoint.declare", now=clock.now()
    )


def check_form(form: EndpointForm, timeout_seconds_max: float) -> None:
    """Refuse what cannot work, naming the field, as far as it can be told before the store is open."""
    check(form, timeout_seconds_max)
    _with_policies(form, BUILT_IN["standard"])


def _marked(endpoint: Endpoint, form: EndpointForm, rules: EndpointRules) -> Endpoint:
    return msgspec.structs.replace(endpoint, declared=_digest(form, rules.standard))


def _digest(form: EndpointForm, standard: RetryPolicy) -> str:
    """The same for the same declaration, in every process; another one if a policy that it names has changed.

    A setting that a later version added counts only where it is used: it must not make every declaration look changed.
    """
    said, usual = (msgspec.to_builtins(one) for one in (_with_policies(form, standard), EndpointForm(name="")))
    counted = {name: value for name, value in said.items() if name in _FROM_THE_START or value != usual[name]}
    content = msgspec.json.encode(counted, order="sorted")
    return hashlib.sha256(content).hexdigest()[:_DIGEST_CHARS]


def _with_policies(form: EndpointForm, standard: RetryPolicy) -> EndpointForm:
    return msgspec.structs.replace(
        form,
        policy=None if form.policy is None else policy_from(form.policy, standard),
        policy_by_event_type={
            pattern: policy_from(policy, standard) for pattern, policy in form.policy_by_event_type.items()
        },
    )

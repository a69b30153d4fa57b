"""R3: errors are classified."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

from doorstep.clock import SECOND
from doorstep.errors import Permanent, Transient
from doorstep.model.delivery import Delivery, DeliveryState
from doorstep.model.endpoint import EndpointState
from doorstep.model.listing import Orgs
from doorstep.telemetry.facts import DeliveryFailure, EndpointDisabled, level_of
from doorstep.transports.handler_replies import Received
from tests.support.loop_receiver import Answer
from tests.support.scene import Scene

_S = DeliveryState

STATUSES: dict[int, tuple[str, str]] = {
    408: ("transient", "REQUEST_TIMEOUT"),
    425: ("transient", "TOO_EARLY"),
    429: ("transient", "RATE_LIMIT"),
    500: ("transient", "SERVICE_UNAVAILABLE"),
    502: ("transient", "SERVICE_UNAVAILABLE"),
    503: ("transient", "SERVICE_UNAVAILABLE"),
    504: ("transient", "SERVICE_UNAVAILABLE"),
    599: ("transient", "SERVICE_UNAVAILABLE"),
    301: ("permanent", "REDIRECT"),
    307: ("permanent", "REDIRECT"),
    400: ("permanent", "INVALID_FORMAT"),
    401: ("permanent", "AUTH_FAILED"),
    403: ("permanent", "AUTH_FAILED"),
    404: ("permanent", "NOT_FOUND"),
    410: ("permanent", "GONE"),
    418: ("permanent", "REJECTED"),
    422: ("permanent", "INVALID_FORMAT"),
}


# -- R3.1, R3.2 --------------------------------------------------------------------------------------------


async def test_every_answer_has_its_category_its_code_and_a_sentence(scene: Scene) -> None:
    _answer_by_path(scene)
    deliveries = {status: await _sent(scene, f"/{status}") for status in STATUSES}
    for status, (category, code) in STATUSES.items():
        seen = await scene.until_tried(deliveries[status])
        assert (seen.response_code, seen.category, seen.code) == (status, category, code)
        assert seen.reason is not None and str(status) in seen.reason and seen.reason.endswith((".", "URL."))


async def test_a_permanent_failure_is_a_dead_letter_at_once_and_a_transient_one_waits_for_its_retry(
    scene: Scene,
) -> None:
    _answer_by_path(scene)
    deliveries = {status: await _sent(scene, f"/{status}") for status in STATUSES}
    for status, (category, _) in STATUSES.items():
        seen = await scene.until_tried(deliveries[status])
        expected = (_S.PENDING, 1) if category == "transient" else (_S.DEAD, 1)
        assert (seen.state, seen.attempt) == expected, status
        assert (seen.next_retry_at is None) == (category == "permanent")


async def test_a_dead_letter_is_told_as_an_error_that_someone_can_be_alerted_by(scene: Scene) -> None:
    scene.receiver.says(404)
    await scene.until_state(await _sent(scene), _S.DEAD)
    (told,) = scene.heard(DeliveryFailure)
    assert (level_of(told), told.next_retry_at) == ("error", None)
    assert told.error == {"category": "permanent", "code": "NOT_FOUND", "response_code": 404, "attempt_count": 1}


async def test_a_receiver_that_gives_no_usable_answer_has_a_code_of_its_own(scene: Scene) -> None:
    scene.receiver.hold.clear()
    async with _no_tls() as port:
        urls = {
            "TIMEOUT": scene.receiver.url(),
            "CONNECTION": f"http://127.0.0.1:{_closed_port()}/",
            "TLS": f"https://127.0.0.1:{port}/",
        }
        deliveries = {code: await _sent(scene, url=url, timeout_seconds=0.3) for code, url in urls.items()}
        for code, category in {"TIMEOUT": "transient", "CONNECTION": "transient", "TLS": "permanent"}.items():
            seen = await scene.until_tried(deliveries[code])
            assert (seen.code, seen.category, seen.response_code) == (code, category, None)


async def test_a_name_that_cannot_be_resolved_is_worth_another_try(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", _no_such_name)
    seen = await scene.until_tried(await _sent(scene, url="https://nowhere.example/"))
    assert (seen.code, seen.category, seen.state) == ("DNS", "transient", _S.PENDING)


async def test_an_address_that_may_not_be_reached_is_blocked_and_given_up(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name looks harmless, but the guard checks the address behind it."""
    answer = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.1", 443))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answer)
    seen = await scene.until_tried(await _sent(scene, url="https://harmless.example/"))
    assert (seen.code, seen.category, seen.state) == ("BLOCKED", "permanent", _S.DEAD)


async def test_an_endpoint_can_say_what_to_retry_and_what_to_give_up_on(scene: Scene) -> None:
    _answer_by_path(scene)
    by_code = await _sent(scene, "/404", retry_on=["NOT_FOUND"])
    by_status = await _sent(scene, "/401", retry_on=["401"])
    everything = await _sent(scene, "/418", retry_on=["*"])
    given_up = await _sent(scene, "/503", give_up_on=["5xx"])
    for delivery, state in ((by_code, _S.PENDING), (by_status, _S.PENDING), (everything, _S.PENDING)):
        assert (await scene.until_tried(delivery)).state is state
    assert (await scene.until_tried(given_up)).state is _S.DEAD


async def test_gone_disables_the_endpoint_and_what_waits_for_it_is_held(scene: Scene) -> None:
    scene.receiver.says(410)
    endpoint = await scene.endpoint()
    (first,) = await scene.send_to(endpoint)
    await scene.until_state(first, _S.DEAD)
    await scene.until_endpoint(endpoint, EndpointState.DISABLED)
    (second,) = await scene.send_to(endpoint)
    await scene.nothing_more_arrives()
    assert ((await scene.delivery(second)).state, len(scene.receiver.requests)) == (_S.PENDING, 1)
    assert len(scene.heard(EndpointDisabled)) == 1


# -- R3.3 --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "pause"),
    [("17", 17.0), ("0", 1.0), ("999999", 86_400.0)],
    ids=["in-seconds", "at-least-a-second", "at-most-a-day"],
)
async def test_retry_after_in_seconds_replaces_the_delay_within_bounds(scene: Scene, asked: str, pause: float) -> None:
    scene.receiver.answer = lambda _: Answer(503, (f"retry-after: {asked}",))
    assert pause <= await _pause_after(scene, await _sent(scene)) <= 1.1 * pause


async def test_retry_after_as_a_date_replaces_the_delay(scene: Scene) -> None:
    def in_ten_minutes(_: object) -> Answer:
        return Answer(429, (f"retry-after: {formatdate(scene.clock.now() / SECOND + 600, usegmt=True)}",))

    scene.receiver.answer = in_ten_minutes
    assert 598 <= await _pause_after(scene, await _sent(scene)) <= 661


async def test_abort_message_ends_this_delivery_and_leaves_the_endpoint_alone(scene: Scene) -> None:
    scene.receiver.answer = lambda _: Answer(503, ("webhook-delivery: abort-message",))
    endpoint = await scene.endpoint(retry_on=["*"])
    (delivery,) = await scene.send_to(endpoint)
    assert (await scene.until_state(delivery, _S.DEAD)).code == "ABORTED"
    scene.receiver.says(200)
    (next_one,) = await scene.send_to(endpoint)
    await scene.until_state(next_one, _S.DELIVERED)


@pytest.mark.parametrize("status", [200, 503])
async def test_disable_stops_the_endpoint_whatever_became_of_the_delivery(scene: Scene, status: int) -> None:
    scene.receiver.answer = lambda _: Answer(status, ("webhook-delivery: disable",))
    endpoint = await scene.endpoint()
    (delivery,) = await scene.send_to(endpoint)
    await scene.until_endpoint(endpoint, EndpointState.DISABLED)
    assert (await scene.delivery(delivery)).state is (_S.DELIVERED if status == 200 else _S.PENDING)


# -- R3.4 --------------------------------------------------------------------------------------------------


def busy(_: Received) -> None:
    raise Transient("RATE_LIMIT", retry_after=30)


def malformed(_: Received) -> None:
    raise Permanent("INVALID_FORMAT", "There is no such account.")


def broken(_: Received) -> None:
    raise ZeroDivisionError("an accident")


async def broken_async(_: Received) -> None:
    broken(_)


async def test_a_handler_that_raises_transient_is_tried_again_when_it_said(scene: Scene) -> None:
    delivery = await _handled(scene, busy)
    assert 30 <= await _pause_after(scene, delivery) <= 33
    seen = await scene.delivery(delivery)
    assert (seen.state, seen.category, seen.code) == (_S.PENDING, "transient", "RATE_LIMIT")


async def test_a_handler_that_raises_permanent_is_not_tried_again_and_its_words_are_the_reason(scene: Scene) -> None:
    seen = await scene.until_state(await _handled(scene, malformed), _S.DEAD)
    assert (seen.category, seen.code, seen.attempt) == ("permanent", "INVALID_FORMAT", 1)
    assert seen.reason == "There is no such account."


@pytest.mark.parametrize("handler", [broken, broken_async], ids=["plain", "async"])
async def test_any_other_exception_is_transient_and_its_traceback_is_kept_for_operators(
    scene: Scene, handler: Callable[[Received], object]
) -> None:
    delivery = await scene.until_tried(await _handled(scene, handler))
    assert (delivery.state, delivery.category, delivery.code) == (_S.PENDING, "transient", "HANDLER_ERROR")
    (attempt,) = await scene.attempts(delivery)
    assert "Traceback" in attempt.detail and "ZeroDivisionError: an accident" in attempt.detail
    assert "in broken" in attempt.detail
    assert "Traceback" not in attempt.reason


async def test_a_code_map_translates_a_carriers_own_codes(scene: Scene) -> None:
    def carrier(_: Received) -> None:
        raise Transient("E-4711", "The number is not in use.")

    by_handler = await _handled(scene, carrier, code_map={"E-4711": "BATCH_REJECTED"})
    scene.receiver.says(418)
    by_status = await _sent(scene, code_map={"418": "RATE_LIMIT"})
    seen = await scene.until_tried(by_handler)
    assert (seen.state, seen.category, seen.code) == (_S.DEAD, "permanent", "BATCH_REJECTED")
    seen = await scene.until_tried(by_status)
    assert (seen.state, seen.category, seen.code) == (_S.PENDING, "transient", "RATE_LIMIT")


async def test_a_code_map_decides_also_where_a_code_has_one_of_our_names(scene: Scene) -> None:
    def carrier(_: Received) -> None:
        raise Transient("AUTH_FAILED", "The carrier's password has expired.")

    seen = await scene.until_tried(await _handled(scene, carrier, code_map={"AUTH_FAILED": "AUTH_FAILED"}))
    assert (seen.state, seen.category, seen.code) == (_S.DEAD, "permanent", "AUTH_FAILED")


@dataclass
class Order:
    order: int


class TypedOrder(TypedDict):
    order: int


class StructOrder(msgspec.Struct):
    order: int


class ModelOrder(pydantic.BaseModel):
    order: int = pydantic.Field(gt=0)


KINDS: tuple[Any, ...] = (Order, TypedOrder, StructOrder, ModelOrder)


async def test_payloads_are_decoded_into_the_type_of_a_handlers_parameter(scene: Scene) -> None:
    seen: list[object] = []
    for number, kind in enumerate(KINDS):

        def ship(order: Any, event: Received) -> None:
            seen.append((order, event.attempt))

        ship.__annotations__["order"] = kind
        delivery = await _given(scene, ship, f"ship.{number}", kind(order=7))
        await scene.until_state(delivery, _S.DELIVERED)
    assert seen == [(kind(order=7), 1) for kind in KINDS]


async def test_a_payload_that_does_not_match_is_permanent_and_a_mistake_of_the_program_is_not(scene: Scene) -> None:
    for number, kind in enumerate(KINDS):

        def ship(order: Any) -> object:
            return order.item if hasattr(order, "order") else order["item"]

        ship.__annotations__["order"] = kind
        refused = await _given(scene, ship, f"refuse.{number}", {"order": "canary"})
        seen = await scene.until_state(refused, _S.DEAD)
        assert (seen.category, seen.code) == ("permanent", "INVALID_FORMAT")
        assert seen.reason is not None and seen.reason.startswith(
            f"The payload does not match {kind.__name__}: order: "
        )
        assert seen.reason.endswith(".") and "canary" not in seen.reason
        failed = await _given(scene, ship, f"fail.{number}", kind(order=7))
        seen = await scene.until_tried(failed)
        assert (seen.state, seen.category, seen.code) == (_S.PENDING, "transient", "HANDLER_ERROR")
        assert "in ship" in (await scene.attempts(seen))[0].detail


async def test_what_another_system_did_not_answer_is_told_from_a_mistake(scene: Scene) -> None:
    for number, (error, code) in enumerate(
        (
            (TimeoutError("canary"), "TIMEOUT"),
            (ConnectionResetError("canary"), "CONNECTION"),
            (socket.gaierror(-2, "canary"), "DNS"),
            (ssl.SSLCertVerificationError("canary"), "TLS"),
        )
    ):

        def call(_: Received, error: BaseException = error) -> None:
            raise error

        seen = await scene.until_tried(await _given(scene, call, f"call.{number}"))
        assert (seen.state, seen.category, seen.code) == (_S.PENDING, "transient", code)
        assert seen.reason is not None and type(error).__name__ in seen.reason and "canary" not in seen.reason
        assert "in call" in (await scene.attempts(seen))[0].detail


# -- R3.5 --------------------------------------------------------------------------------------------------

PAYLOAD = b'{"card": "canary-payload"}'
TOKEN = "canary-token"


def quoting_transient(received: Received) -> None:
    raise Transient("BUSY", f"cannot take {received.payload.decode()}")


def quoting_permanent(received: Received) -> None:
    raise Permanent("INVALID_FORMAT", f"cannot use {received.payload!r}")


def quoting_anything(received: Received) -> None:
    raise ValueError(received.payload, received.payload.decode())


async def test_neither_reason_nor_error_nor_any_log_line_holds_a_secret_or_a_payload(scene: Scene) -> None:
    await scene.close()
    await scene.open(admin_key="canary-admin-key")
    scene.receiver.answer = lambda request: Answer(500, body=request.body)
    secrets = await _fail_in_every_way(scene)
    canaries = [TOKEN, "canary-payload", "canary-admin-key", *secrets]
    told = "\n".join(str(line) for line in scene.log())
    for canary in canaries:
        assert canary not in told
    (org,) = await scene.doorstep.components.store.find(None, Orgs())
    for fact in scene.heard(DeliveryFailure):
        delivery = await scene.doorstep.components.reader.delivery(org.org_id, fact.delivery_id)
        for attempt in await scene.attempts(delivery):
            kept = "\n".join((attempt.reason, attempt.detail, delivery.reason or "", str(attempt.request_headers)))
            assert [canary for canary in canaries if canary in kept] == []


async def _fail_in_every_way(scene: Scene) -> list[str]:
    """Cause every kind of failure; return the signing secrets of the endpoints."""
    ways = [{"url": scene.receiver.url()}, {"url": f"http://127.0.0.1:{_closed_port()}/?key={TOKEN}"}]
    ways.append({"url": f"https://127.0.0.1:{scene.receiver.port}/?key={TOKEN}"})
    for handler in (quoting_transient, quoting_permanent, quoting_anything):
        scene.doorstep.register(handler.__name__, handler)
        ways.append({"handler": handler.__name__})
    secrets = []
    for number, way in enumerate(ways):
        _, secret = await scene.doorstep.create_endpoint(
            name=f"way {number}", headers={"authorization": f"Bearer {TOKEN}"}, timeout_seconds=0.5, **way
        )
        secrets.append(secret.removeprefix("whsec_"))
    sent = await scene.send(payload=PAYLOAD)
    for delivery in await scene.deliveries(sent):
        await scene.until_tried(delivery)
    assert len(scene.heard(DeliveryFailure)) == len(ways)
    return secrets


# -- helpers -----------------------------------------------------------------------------------------------


def _answer_by_path(scene: Scene) -> None:
    scene.receiver.answer = lambda request: Answer(int(request.path[1:]), ("location: /elsewhere",))


async def _sent(scene: Scene, path: str = "/hook", **fields: object) -> Delivery:
    (delivery,) = await scene.send_to(await scene.endpoint(path, **fields))
    return delivery


async def _given(scene: Scene, handler: Callable[..., object], name: str, payload: object = None) -> Delivery:
    """The delivery of an event to this handler alone."""
    scene.doorstep.register(name, handler)
    await scene.endpoint(name, handler=name, event_types=(name,))
    (delivery,) = await scene.deliveries(await scene.send(name, payload))
    return delivery


async def _handled(scene: Scene, handler: Callable[[Received], object], **fields: object) -> Delivery:
    scene.doorstep.register("handler", handler)
    return await _sent(scene, handler="handler", **fields)


async def _pause_after(scene: Scene, delivery: Delivery) -> float:
    await scene.until_tried(delivery)
    (attempt,) = await scene.attempts(delivery)
    assert attempt.next_retry_at is not None
    return (attempt.next_retry_at - attempt.finished_at) / SECOND


@asynccontextmanager
async def _no_tls() -> AsyncIterator[int]:
    """The port of a server that answers a TLS handshake with plain text."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Plain HTTP only\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def _closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _no_such_name(*_: object, **__: object) -> list[object]:
    raise socket.gaierror(socket.EAI_NONAME, "no such name")

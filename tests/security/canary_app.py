"""A program whose handlers expose payloads in the ways that real handlers do: `doorstep serve --app`.

`LEAK` disables a protection that keeps payloads out of logs, spans and the attempt log; the tests must then fail.
"""

from __future__ import annotations

import logging
import os

from doorstep import Doorstep, Entity, Permanent, Pipeline, Stage, Transient
from doorstep.model.delivery import DeadLetter
from doorstep.model.endpoint import CircuitRules
from doorstep.transports.handler_replies import Received

doorstep = Doorstep()
NEVER = CircuitRules(failures_max=10_000)


@doorstep.handler("handled.quoting", policy=[0.05], circuit=NEVER)
async def quoting(event: Received) -> None:
    raise ValueError(f"cannot work with {event.json()}")


@doorstep.handler("handled.value", policy=[0.05], circuit=NEVER)
def value(event: Received) -> None:
    """The traceback contains the chained exception too."""
    try:
        {}[event.json()["kept"]]
    except KeyError as error:
        raise RuntimeError("value " + event.json()["kept"] + " is unknown") from error


@doorstep.handler("handled.telling", policy=[0.05], circuit=NEVER)
def telling(event: Received) -> None:
    raise Transient("CARRIER", f"the carrier does not take {event.json()['kept']}")


@doorstep.handler("handled.group", policy=[0.05], circuit=NEVER)
async def group(event: Received) -> None:
    first, second = ValueError(event.payload), LookupError(list(event.json()))
    raise ExceptionGroup(f"both, {event.payload!r}", [first, second])


@doorstep.handler("handled.isolated", policy=[0.05], circuit=NEVER, isolated=True)
def isolated(event: Received) -> None:
    raise Permanent("INVALID_FORMAT", f"what is {event.json()['kept']}?")


@doorstep.handler("handled.single", policy=[0.05], circuit=NEVER)
def single(event: Received) -> None:
    """An exception with one argument is displayed as that argument."""
    raise ValueError(event.json()["kept"])


@doorstep.handler("handled.misplaced", policy=[0.05], circuit=NEVER)
def misplaced(event: Received) -> None:
    raise Permanent(event.json()["kept"])


parcels = Pipeline("parcel", first="packed", stages=[Stage("sending", failed="unsent", policy=[0.05])], last="sent")
doorstep.add(parcels)


@doorstep.handler("begin")
async def begin(_: Received) -> None:
    for way in ("whole", "single", "telling", "misplaced"):
        await parcels.start({"kept": os.environ["ENTITY_DATA"], "way": way})


@parcels.stage("sending")
def send(parcel: Entity) -> None:
    match parcel.data["way"]:
        case "whole":
            raise RuntimeError(f"cannot send {parcel.data}")
        case "single":
            raise KeyError(parcel.data["kept"])
        case "telling":
            raise Transient("CARRIER", f"the carrier does not take {parcel.data['kept']}")
    raise Permanent(parcel.data["kept"])


def crash() -> Doorstep:
    """Fails while it creates the program, with a setting in the error message."""
    raise RuntimeError(f"cannot use {os.environ['DOORSTEP_SMTP_URL']}")


@doorstep.on_dead_letter
def mourn(letter: DeadLetter) -> None:
    raise RuntimeError(f"cannot tell of {letter.reason}, nor of {letter!r}")


if os.environ.get("LEAK"):
    from doorstep.engine import facts
    from doorstep.telemetry.otlp import SpanKind, encode_span, template
    from doorstep.telemetry.redaction import Secrets
    from doorstep.transports import handler_replies
    from doorstep.transports.handler_replies import Redaction

    Redaction.masked = lambda self, text, chars_max, known=(): text[:chars_max]  # type: ignore[method-assign]
    handler_replies.scrubbed = lambda text: text  # type: ignore[attr-defined]
    Secrets.found_in = lambda self, lines: False  # type: ignore[method-assign]
    _settled = facts.settled_spans
    _SECRETS = [os.environ[f"DOORSTEP_{name}"] for name in ("ADMIN_KEY", "SMTP_URL", "SECRET_KEY")]

    def _telling_all(settlements, result, tracing):  # type: ignore[no-untyped-def]
        for claim in (settlement.claim for settlement in settlements):
            logging.getLogger("doorstep").warning("settled %s, knowing %s", claim.payload, _SECRETS)
            said = (("payload", claim.payload.decode()),)
            form = template("doorstep.attempt", SpanKind.CLIENT, said, parent=True, linked=False)
            yield encode_span(form, 1, 2, 3, 0, 0, claim.event_id, claim.delivery_id, claim.correlation_id)
        yield from _settled(settlements, result, tracing)

    facts.settled_spans = _telling_all

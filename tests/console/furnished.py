"""Builds a "house": an installation with one of everything that a screen can show, from events in all states to people.

`Words` supplies the text for fields that people and receivers fill in. `HostileWords` supplies dangerous text instead.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import uuid4

from doorstep.api.application import create_application
from doorstep.bootstrap import DEFAULT_ORG
from doorstep.console.request import Page
from doorstep.console.sessions import SignInLinks
from doorstep.errors import Permanent
from doorstep.model.org import Role
from tests.acceptance.protocols import Protocols
from tests.console.hostile import HOSTILE, packed, printable_ascii
from tests.console.visiting import Console
from tests.support.api import Api, listening
from tests.support.loop_receiver import Answer, Receiver, Request, receiving
from tests.support.scene import Scene, until

Json = dict[str, Any]


class Words:
    """Supplies harmless text."""

    def __init__(self) -> None:
        self.planted: list[tuple[str, str]] = []
        """Each field with a text that was put there."""

    def names(self, field: str, length_max: int = 200, count_max: int = 1_000) -> list[str]:
        """At least two texts of at most `length_max` characters each. Up to `count_max` texts, all words are used."""
        return self._planted(field, [f"{field} {place}" for place in (1, 2)])

    def codes(self, field: str, length_max: int = 100, count_max: int = 1_000) -> list[str]:
        """Like `names`, for fields that accept only printable ASCII."""
        return self._planted(field, [f"{field.upper()}_{place}" for place in (1, 2)])

    def all(self, field: str) -> list[str]:
        """All texts in one list, for fields that accept any amount of text."""
        return self._planted(field, [f"{field} a", f"{field} b"])

    def _planted(self, field: str, texts: list[str]) -> list[str]:
        self.planted += [(field, text) for text in texts]
        return texts


class HostileWords(Words):
    def names(self, field: str, length_max: int = 200, count_max: int = 1_000) -> list[str]:
        return self._planted(field, _spread(packed(length_max), count_max))

    def codes(self, field: str, length_max: int = 100, count_max: int = 1_000) -> list[str]:
        return self._planted(field, _spread(packed(length_max, printable_ascii()), count_max))

    def all(self, field: str) -> list[str]:
        return self._planted(field, list(HOSTILE))


def _spread(texts: list[str], count_max: int) -> list[str]:
    """At most this many of the texts, evenly spread from first to last."""
    return texts[:: -(-len(texts) // count_max)]


class TamedWords(HostileWords):
    """As many texts as the hostile ones, of the same length, but made only of letters and digits."""

    def _planted(self, field: str, texts: list[str]) -> list[str]:
        return super()._planted(field, [re.sub(r"[^0-9A-Za-z]", "x", text) for text in texts])


class House(NamedTuple):
    scene: Scene
    api: Api
    links: SignInLinks
    words: Words
    ids: Mapping[str, list[str]]
    """Keyed by the parameter names in the page paths."""

    def path(self, page: Page, place: int = 0) -> str:
        """The path of a page, with ids from this house."""
        path = page.path.replace("{entity_id}/gates", "g1/gates")  # the only entity that waits at a gate
        return re.sub(r"\{(\w+)(:\w+)?\}", lambda found: self._id(found[1], place), path)

    def _id(self, name: str, place: int) -> str:
        assert name in self.ids, f"the house has no {name}; furnish one in tests/console/furnished.py"
        return self.ids[name][place % len(self.ids[name])]

    def unknown(self, page: Page) -> str:
        """The path of a page, with ids that do not exist."""
        path = re.sub(r"\{(\w+_id|pipeline)\}", lambda _: str(uuid4()), page.path)
        return self.path(page._replace(path=path))

    async def visitor(self, role: Role = Role.ADMIN, org: str | None = None) -> Console:
        """A session of a signed-in user with this role; if `org` is given, the user is the admin of a new
        organization."""
        keyring, key = self.scene.doorstep.components.keys, None
        if org is not None:
            caller = (await keyring.keys(DEFAULT_ORG))[0]
            _, _, key = await keyring.create_org(org, caller)
        else:
            _, key = await keyring.create(DEFAULT_ORG, f"a {role}", role, "test")
        visitor = await Console(self.api.url).sign_in(key)
        await visitor.get("/console/settings/target")  # its form, and so the CSRF token, is shown to every role
        return visitor


@asynccontextmanager
async def built(database_url: str, words: Words | None = None) -> AsyncIterator[House]:
    """A house without data, or one furnished with these words."""
    async with receiving() as receiver:
        scene = Scene(database_url, receiver)
        protocols = Protocols(scene)
        await protocols.open()
        try:
            links = SignInLinks(scene.clock)
            _, key = await scene.doorstep.components.keys.create(DEFAULT_ORG, "the owner", Role.ADMIN, "test")
            async with listening(create_application(scene.doorstep, links)) as port:
                api = Api(port, key)
                ids = {} if words is None else await _Furnisher(api, protocols, receiver, words).furnish()
                yield House(scene, api, links, words or Words(), ids)
        finally:
            receiver.hold.set()
            await scene.close()


class _Furnisher:
    def __init__(self, api: Api, protocols: Protocols, receiver: Receiver, words: Words) -> None:
        self._api = api
        self._protocols = protocols
        self._receiver = receiver
        self._words = words

    async def furnish(self) -> dict[str, list[str]]:
        self._receiver.answer = self._answer()
        dead, waiting, batches = await self._endpoints()
        letters = await self._events(dead, "dead")
        retries = await self._events(waiting, "pending")
        failed = await self._events(batches, "dead", event_type="sms")
        await self._others()
        return {
            "endpoint_id": [*dead, *waiting, *batches],
            "event_id": [one["event_id"] for one in (*letters, *retries)],
            "delivery_id": [one["delivery_id"] for one in letters],
            "batch_id": [one["event_id"] for one in failed],
            "number": ["1"],
            "act": ["resolve"],
            **await self._entities(),
            **await self._operations(),
            **await self._arrangements(dead),
            **await self._people(),
        }

    def _answer(self) -> Callable[[Request], Answer]:
        """The receiver at /dead refuses permanently with a long body; the others are temporarily down."""
        body = "\n".join(self._words.all("response body")).encode()
        headers = tuple(
            f"x-said-{place}: {text}" for place, text in enumerate(self._words.codes("response header", 2_000))
        )
        return lambda request: Answer(400 if request.path.startswith("/dead") else 503, headers, body)

    async def _endpoints(self) -> tuple[list[str], list[str], list[str]]:
        """Creates endpoints that refuse, endpoints that are down, and endpoints that take batches."""
        names = self._words.names("endpoint name")
        policies = self._words.names("policy name")
        made = await together(
            self._post(
                "/v1/endpoints",
                {
                    "name": name,
                    "url": self._receiver.url(f"/{'dead' if place % 2 else 'down'}/{place}"),
                    "event_types": ["of.nobody"],
                    "policy": {"name": policy, "delays": [600, 600]},
                    "headers": {"X-Own": "a value"},
                    "circuit": {"failures_max": 1_000},
                },
            )
            for place, (name, policy) in enumerate(zip(names, policies, strict=True))
        )
        ids = [str(one["endpoint_id"]) for one in made]
        batch = {"name": "carrier", "url": self._receiver.url("/dead/sms"), "event_types": ["of.nobody"], "batch": True}
        carrier = await self._post("/v1/endpoints", batch)
        codes = self._words.codes("code")
        mapped = {"code_map": dict.fromkeys(codes, "RATE_LIMIT"), "give_up_on": codes[:90], "retry_on": codes[:90]}
        await self._api.patch(f"/v1/endpoints/{ids[0]}", mapped)
        return ids[1::2], ids[0::2], [str(carrier["endpoint_id"])]

    async def _events(self, endpoint_ids: list[str], state: str, event_type: str = "order.paid") -> list[Json]:
        """Creates one event for each of these endpoints, and waits until all of them are in this state."""
        texts = self._words.all(f"payload of {event_type}, {state}")
        metadata = self._words.names(f"metadata of {event_type}, {state}", 4_000, 3)
        keys = self._words.codes(f"ordering key of {event_type}, {state}", 250, 3)
        events = [
            {
                "event_type": event_type,
                "payload": {"texts": texts, "number": 1.10} if place == 0 else {"number": place},
                "metadata": {"text": metadata[place % len(metadata)]},
                "endpoint_ids": [endpoint_id],
                "ordering_key": keys[place % len(keys)],
            }
            for place, endpoint_id in enumerate(endpoint_ids)
        ]
        receipts = await together(self._post("/v1/events", event) for event in events)
        return await together(
            self._api.until_delivery(str(one["event_id"]), state=state, attempts=1) for one in receipts
        )

    async def _others(self) -> None:
        """Creates one event without deliveries, and one that is scheduled for later."""
        await self._post("/v1/events", {"event_type": "inbox.only", "payload": 1})
        later = (datetime.now(UTC) + timedelta(days=1)).isoformat()
        await self._post("/v1/events", {"event_type": "inbox.later", "payload": 1, "deliver_at": later})

    async def _entities(self) -> dict[str, list[str]]:
        """Creates entities that failed, with long reasons, and one that waits at its gate."""
        data = {"texts": self._words.all("data")}
        reasons, codes = self._words.names("error reason"), self._words.codes("error code", 60)

        def fail(entity: Any) -> None:
            place = int(entity.entity_id[1:])
            raise Permanent(codes[place % len(codes)], reasons[place % len(reasons)])

        self._protocols.does["extracting"] = lambda entity: fail(entity) if entity.entity_id[0] == "f" else None
        ids = [f"f{place}" for place in range(len(reasons))]
        for entity_id in (*ids, "g1"):
            await self._protocols.start(entity_id, **data)
        for entity_id in ids:
            await self._protocols.until("extraction_failed", "dead_letter", entity_id=entity_id)
        await self._protocols.until("pending_review", entity_id="g1")
        return {"pipeline": ["protocol"], "gate": ["pending_review"], "entity_id": [*ids, "g1"]}

    async def _operations(self) -> dict[str, list[str]]:
        reasons = self._words.names("reason of an operation", 500)
        made = await together(
            self._post("/v1/dead-letters/bulk-resolve", {"delivery_ids": [str(uuid4())], "reason": reason})
            for reason in reasons
        )

        async def over() -> bool:
            found = await self._api.all("/v1/bulk", "bulk")
            return all(one["state"] == "finished" for one in found)

        await until(over, "the end of all operations")
        return {"bulk_id": [str(one["bulk_id"]) for one in made]}

    async def _arrangements(self, endpoint_ids: list[str]) -> dict[str, list[str]]:
        """Creates silences, channels and other alert configuration, and endpoints that are paused, each with a
        reason."""
        until_at = (datetime.now(UTC) + timedelta(days=1)).isoformat()
        silences = await together(
            self._post("/v1/silences", {"until_at": until_at, "rule": "oldest_due", "reason": reason})
            for reason in self._words.names("reason of a silence", 500)
        )
        channels = await together(
            self._post("/v1/channels", {"name": name, "kind": "webhook", "target": self._receiver.url("/ok")})
            for name in self._words.names("channel name", 100, 50)
        )
        pauses = zip(endpoint_ids, self._words.names("reason of a pause", 500), strict=False)
        for endpoint_id, reason in pauses:
            await self._post(f"/v1/endpoints/{endpoint_id}/pause", {"reason": reason})
        rule = await self._post("/v1/alert-rules", {"rule": "oldest_due", "threshold": 60})

        async def told() -> bool:
            return bool((await self._api.get("/v1/alerts")).json["alerts"])

        await until(told, "an alert")
        alerts = await self._api.all("/v1/alerts", "alerts")
        return {
            "silence_id": [one["silence_id"] for one in silences],
            "channel_id": [one["channel_id"] for one in channels],
            "alert_rule_id": [rule["alert_rule_id"]],
            "rule": ["oldest_due"],
            "alert_id": [one["alert_id"] for one in alerts],
        }

    async def _people(self) -> dict[str, list[str]]:
        keys = await together(
            self._post("/v1/keys", {"name": name, "role": "viewer"}) for name in self._words.names("key name")
        )
        orgs = await together(self._post("/v1/orgs", {"name": name}) for name in self._words.names("org name", 200, 30))
        return {"key_id": [one["key_id"] for one in keys], "org_id": [one["org_id"] for one in orgs]}

    async def _post(self, path: str, body: Json) -> Json:
        answer = await self._api.post(path, body)
        assert answer.status in (200, 201, 202), (path, body, answer.body)
        found: Json = answer.json
        return found


async def together(calls: Iterable[Awaitable[Json]]) -> list[Json]:
    """Run the calls with limited concurrency; return their results in order."""
    gate = asyncio.Semaphore(8)

    async def one(call: Awaitable[Json]) -> Json:
        async with gate:
            return await call

    return list(await asyncio.gather(*(one(call) for call in calls)))

"""A database with many organizations that have ten endpoints each, as a webhook platform has."""

from __future__ import annotations

from bench.databases import Database
from bench.stock import OTHER_ORG, Wanted, stock
from doorstep.bootstrap import DEFAULT_ORG

ENDPOINTS_OF_ORG = 10
_ORG, _ENDPOINT = "00000000-0000-7000-8001-", "00000000-0000-7000-8002-"
"""The beginnings of the ids of organizations and of endpoints. Their number follows."""


def add_tenants(database: Database, url: str, endpoints: int) -> None:
    """Fill an empty database. An endpoint of the default organization, which is added too, is the model of the others.
    Their secrets cannot be opened, so nothing can be delivered to them."""
    stock(database, Wanted(url, event_type="model"))
    orgs = endpoints // ENDPOINTS_OF_ORG
    numbers = "WITH RECURSIVE numbers (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM numbers WHERE i < {count})"
    org, endpoint = _text_of(database, _ORG, "i"), _text_of(database, _ENDPOINT, "i")
    owner = _text_of(database, _ORG, f"((i - 1) / {ENDPOINTS_OF_ORG} + 1)")
    first = "(SELECT max(value) FROM doorstep_variables WHERE name = 'routing')"
    model = "(SELECT uid AS model_uid, document AS model FROM doorstep_endpoints LIMIT 1) AS m"
    named = (
        f"replace(replace(model, '\"name\":\"model\"', '\"name\":\"tenant ' || i || '\"'), '{DEFAULT_ORG}', {owner})"
    )
    database.run(
        f"{numbers.format(count=orgs)} INSERT INTO doorstep_orgs (uid, routing, document)"
        f" SELECT {_uid_of(database, org)}, {first} + i, replace(document, '{OTHER_ORG}', {org}) FROM numbers,"
        f" (SELECT document FROM doorstep_orgs WHERE document LIKE '%{OTHER_ORG}%') AS m",
        f"{numbers.format(count=endpoints)} INSERT INTO doorstep_endpoints"
        " (uid, org_id, state, version, changed, name, document)"
        f" SELECT {_uid_of(database, endpoint)}, o.id, 'active', 1, o.routing, 'tenant ' || i,"
        f" replace({named}, {_shown(database, 'model_uid')}, {endpoint}) FROM {model}, numbers"
        f" JOIN doorstep_orgs o ON o.uid = {_uid_of(database, owner)}",
        f"UPDATE doorstep_variables SET value = value + {orgs} WHERE name = 'routing'",
        "VACUUM ANALYZE" if database.store == "postgres" else "ANALYZE",
    )


def org_id_of(number: int) -> str:
    """The id of an organization, from 1."""
    return f"{_ORG}{number:012x}"


def endpoint_id_of(number: int) -> str:
    """The id of an endpoint, from 1. The first ten belong to the first organization."""
    return f"{_ENDPOINT}{number:012x}"


def _text_of(database: Database, beginning: str, number: str) -> str:
    digits = f"printf('%012x', {number})" if database.store == "sqlite" else f"lpad(to_hex({number}), 12, '0')"
    return f"('{beginning}' || {digits})"


def _uid_of(database: Database, text: str) -> str:
    """The stored form of an id."""
    return f"uid_of({text})" if database.store == "sqlite" else f"{text}::uuid"


def _shown(database: Database, uid: str) -> str:
    """A stored id as text."""
    return f"text_of({uid})" if database.store == "sqlite" else f"{uid}::text"

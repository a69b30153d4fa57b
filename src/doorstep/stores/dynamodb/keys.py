"""The keys of documents. Documents of one kind that are listed together share a partition."""

from __future__ import annotations

from uuid import UUID

from doorstep.stores.dynamodb.client import Key

ORGS = "orgs"
ENDPOINTS = "endpoints"
WORKERS = "workers"
LIVE_BULKS = "bulks"
KEY_CHECK: Key = ("variable", "key_check")


def org_key(org_id: UUID) -> Key:
    return ORGS, str(org_id)


def endpoint_key(endpoint_id: UUID) -> Key:
    return ENDPOINTS, str(endpoint_id)


def endpoint_name_key(org_id: UUID, name: str) -> Key:
    return f"names#{org_id}", name


def keys_partition(org_id: UUID) -> str:
    return f"keys#{org_id}"


def digest_key(digest: bytes) -> Key:
    """The item that leads from the digest of an API key to the key."""
    return f"digest#{digest.hex()}", "key"


def audit_partition(org_id: UUID) -> str:
    return f"audit#{org_id}"


def lock_key(task: str) -> Key:
    return f"lock#{task}", "lock"

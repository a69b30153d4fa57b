"""Builds requests with the signature headers that Doorstep sends."""

from __future__ import annotations

from doorstep.transports.signature import Signer, new_private_key, new_secret, public_key_of

ID, AT, BODY = "01890a5d-ac96-774b-bcce-b302099a8057", 1_769_860_800, b'{"order": 42}'
SECRET, OTHER_SECRET = new_secret(), new_secret()
PRIVATE_KEY = new_private_key()
PUBLIC_KEY = public_key_of(PRIVATE_KEY)


def headers(*secrets: str, body: bytes = BODY, at: int = AT, webhook_id: str = ID) -> dict[str, str]:
    lines = Signer(secrets).headers(webhook_id, at, body)
    return dict(line.split(": ", 1) for line in lines)  # type: ignore[misc]

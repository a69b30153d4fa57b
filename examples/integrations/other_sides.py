"""A partner and an ERP for the story and its tests: they do what they are told to."""

from __future__ import annotations

from examples.integrations.profile import ErpError


class ScriptedPartner:
    """Busy as often as told; otherwise keeps the message and gives a receipt."""

    def __init__(self) -> None:
        self.busy_for = 0
        self.messages: list[str] = []

    def deposit(self, message: str) -> str:
        if self.busy_for:
            self.busy_for -= 1
            raise ConnectionRefusedError("busy")
        self.messages.append(message)
        return f"receipt {len(self.messages)}"


class ScriptedErp:
    """Refuses with `error` while there is one."""

    def __init__(self) -> None:
        self.error: ErpError | None = None
        self.documents: list[dict[str, object]] = []

    def post(self, document: dict[str, object]) -> None:
        if self.error:
            raise self.error
        self.documents.append(document)

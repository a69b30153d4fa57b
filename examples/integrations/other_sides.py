"""A simulated partner and a simulated ERP. The example and its tests configure their responses."""

from __future__ import annotations

from examples.integrations.endpoints import ErpError


class ScriptedPartner:
    """Is busy for a configured number of calls; after that, it stores messages and returns receipts."""

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
    """Rejects every posting with `error` while `error` is set."""

    def __init__(self) -> None:
        self.error: ErpError | None = None
        self.documents: list[dict[str, object]] = []

    def post(self, document: dict[str, object]) -> str:
        if self.error:
            raise self.error
        self.documents.append(document)
        return f"document {len(self.documents)}"

"""The handlers of channels that are no HTTP: they run in every worker that has what they need, like any other handler.

Where a message goes is sealed with the channel's endpoint, as its headers; so no payload and no log line has it.
"""

from __future__ import annotations

from collections.abc import Mapping

from doorstep.errors import Permanent
from doorstep.model.channel import OPERATIONS_ORG
from doorstep.model.outcome import Code
from doorstep.path.directory import Directory, unseal_headers
from doorstep.sealing import Sealer
from doorstep.wire.address_guard import AddressGuard
from doorstep.wire.apprise_process import is_installed, send_by_apprise
from doorstep.wire.mail import Mail, MailServer, send_mail
from doorstep.wire.received import Handler, Received

EMAIL_HANDLER = "doorstep.email"
APPRISE_HANDLER = "doorstep.apprise"
TARGET = "target"
"""The name under which a channel's endpoint keeps where its messages go."""
TIMEOUT_SECONDS = 20.0
"""For one message; a process that imports Apprise takes a second of it."""
ORGS = frozenset({OPERATIONS_ORG})
"""The only organization whose endpoints reach these handlers."""


class Messengers:
    """What this process can send by. `server` is None where no mail server is set."""

    def __init__(self, directory: Directory, sealer: Sealer, guard: AddressGuard, server: MailServer | None) -> None:
        self._directory = directory
        self._sealer = sealer
        self._guard = guard
        self._server = server

    @property
    def handlers(self) -> Mapping[str, Handler]:
        mail: dict[str, Handler] = {} if self._server is None else {EMAIL_HANDLER: self.email}
        return mail | ({APPRISE_HANDLER: self.apprise} if is_installed() else {})

    def email(self, message: Received) -> object:
        assert self._server is not None, "without a server it is not among the handlers"
        said = message.json()
        mail = Mail(
            to=self._target(message).split(","),
            subject=said["subject"],
            text=said["text"],
            mail_id=str(message.event_id),
        )
        refused = send_mail(self._server, self._guard, mail, TIMEOUT_SECONDS - 1)
        return {"refused": refused} if refused else None

    async def apprise(self, message: Received) -> None:
        await send_by_apprise(self._target(message), message.json(), self._guard, TIMEOUT_SECONDS - 1)

    def _target(self, message: Received) -> str:
        endpoint = self._directory.endpoint(message.endpoint_id)
        if endpoint is None:
            raise Permanent(Code.ENDPOINT_DELETED, "The channel was deleted.")
        return unseal_headers(endpoint, self._sealer)[TARGET]

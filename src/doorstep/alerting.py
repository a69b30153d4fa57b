"""The parts of class Doorstep that see to it that somebody is told: desks, messengers, and the Watch."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Mapping
from typing import NamedTuple
from uuid import UUID

from doorstep.config import Settings
from doorstep.path.alert_desk import AlertDesk
from doorstep.path.channels import ChannelDesk
from doorstep.path.messengers import ORGS, Messengers
from doorstep.services.watch import Watch
from doorstep.wire.mail_session import MailServer
from doorstep.wire.received import Handler


class Alerting(NamedTuple):
    desk: AlertDesk
    """Alerts, rules and silences."""
    channels: ChannelDesk
    messengers: Messengers
    watch: Watch

    def handlers(self, own: Mapping[str, Handler]) -> Mapping[str, Handler]:
        """The program's handlers and ours; the program may still add to its own."""
        return ChainMap(dict(self.messengers.handlers), own)  # type: ignore[arg-type]  # it is only read

    def orgs(self, own: Mapping[str, Collection[UUID]]) -> Mapping[str, Collection[UUID]]:
        return ChainMap(dict.fromkeys(self.messengers.handlers, ORGS), own)  # type: ignore[arg-type]


def console_of(settings: Settings) -> str:
    """Where links in messages lead: what the operator said, else where this process listens."""
    return settings.public_url.rstrip("/") or f"http://{settings.host}:{settings.port}"


def mail_server(settings: Settings) -> MailServer | None:
    if settings.smtp_url is None:
        return None
    return MailServer.from_url(settings.smtp_url.get_secret_value(), settings.smtp_from)

"""A channel as its owner describes it: what is wrong with it, and the endpoint that it becomes."""

from __future__ import annotations

import re
from urllib.parse import urlsplit
from uuid import UUID

from msgspec.structs import replace

from doorstep.errors import InvalidInput
from doorstep.model.alert import Rule
from doorstep.model.channel import Channel, ChannelKind
from doorstep.model.noun import Noun
from doorstep.model.retry_policy import RetryPolicy
from doorstep.path.alert_book import MESSAGE
from doorstep.path.enrol import EndpointForm
from doorstep.path.messengers import APPRISE_HANDLER, EMAIL_HANDLER, OWNER, TARGET
from doorstep.stores.text import check_storable
from doorstep.wire.apprise_child import LOCAL_SCHEMES
from doorstep.wire.apprise_process import is_installed

_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_ADDRESS = re.compile(rf"(?=[^@]{{1,64}}@)(?=.{{1,254}}$){_ATOM}(\.{_ATOM})*@{_LABEL}(\.{_LABEL})*")
"""As RFC 5321 has it, without quoted names, and without addresses instead of domains."""
_SEVERAL = re.compile(r"\s|[,;][A-Za-z0-9]+://")
"""Where Apprise would begin another URL."""
_ADDRESSES_MAX = 20
_NAME_CHARACTERS_MAX = 100
_URL_CHARACTERS_MAX = 2_000
_POLICY = RetryPolicy((10.0, 60.0, 300.0, 900.0, 3_600.0, 10_800.0), name="alerts")
_PACES = {
    ChannelKind.WEBHOOK: (8, 50.0),
    ChannelKind.SLACK: (1, 1.0),
    ChannelKind.EMAIL: (2, 5.0),
    ChannelKind.APPRISE: (1, 1.0),
}
"""How many messages at once, and how many a second: what chats and mail servers put up with, Slack says one a second."""
_NO_APPRISE = 'Apprise is not installed here; the operator adds it with pip install "doorstep[apprise]"'
_NO_MAIL = "e-mail needs a mail server; the operator sets it with DOORSTEP_SMTP_URL"


class ChannelForm(Noun, frozen=True, kw_only=True):
    name: str
    kind: ChannelKind
    target: str
    """A URL; for e-mail, addresses with commas between them."""
    rules: tuple[Rule, ...] = ()
    endpoint_ids: tuple[UUID, ...] = ()
    recoveries: bool = True


def check(form: ChannelForm, *, has_mail: bool) -> None:
    """Refuse what cannot work, naming the field. A URL is judged when its endpoint is made."""
    if not 1 <= len(form.name) <= _NAME_CHARACTERS_MAX:
        raise InvalidInput("name", f"must be 1 to {_NAME_CHARACTERS_MAX} characters, got {len(form.name)}")
    check_storable("name", form.name)
    if form.kind is ChannelKind.EMAIL:
        _check_mail(form.target, has_mail)
    if form.kind is ChannelKind.APPRISE:
        _check_apprise(form.target)


def endpoint_form(form: ChannelForm, owner: UUID, timeout_seconds: float) -> EndpointForm:
    """Where a message goes that is no HTTP is sealed with the endpoint, as its headers, and whose it is."""
    concurrency_max, rate_per_second = _PACES[form.kind]
    common = EndpointForm(
        name=form.name,
        event_types=(MESSAGE,),
        policy=_POLICY,
        timeout_seconds=timeout_seconds,
        concurrency_max=concurrency_max,
        rate_per_second=rate_per_second,
    )
    match form.kind:
        case ChannelKind.EMAIL:
            return replace(common, handler=EMAIL_HANDLER, headers=_sealed(owner, ",".join(_addresses(form.target))))
        case ChannelKind.APPRISE:
            return replace(common, handler=APPRISE_HANDLER, headers=_sealed(owner, form.target))
    return replace(common, url=form.target)


def _sealed(owner: UUID, target: str) -> dict[str, str]:
    return {TARGET: target, OWNER: str(owner)}


def shown(form: ChannelForm) -> str:
    """A Slack webhook's path and an Apprise URL are credentials: of those only the beginning is shown."""
    match form.kind:
        case ChannelKind.EMAIL:
            return ", ".join(_addresses(form.target))
        case ChannelKind.WEBHOOK:
            return form.target.partition("?")[0]
        case ChannelKind.SLACK:
            parts = urlsplit(form.target)
            return f"{parts.scheme}://{parts.hostname}/…"
    return f"{form.target.partition('://')[0]}://…"


def addresses_of(channel: Channel) -> int:
    """How many e-mail addresses a message to it goes to."""
    return len(_addresses(channel.shown)) if channel.means is ChannelKind.EMAIL else 0


def _check_mail(target: str, has_mail: bool) -> None:
    if not has_mail:
        raise InvalidInput("kind", _NO_MAIL)
    addresses = _addresses(target)
    wrong = next((one for one in addresses if not _ADDRESS.fullmatch(one)), None)
    if wrong is not None or not 1 <= len(addresses) <= _ADDRESSES_MAX:
        seen = len(addresses) if wrong is None else repr(wrong[:100])
        raise InvalidInput("target", f"must be 1 to {_ADDRESSES_MAX} e-mail addresses, got {seen}")


def _check_apprise(target: str) -> None:
    if not is_installed():
        raise InvalidInput("kind", _NO_APPRISE)
    if "://" not in target or not target.isprintable() or not target.isascii() or len(target) > _URL_CHARACTERS_MAX:
        raise InvalidInput("target", "must be a URL that Apprise knows, such as mailtos://… or tgram://…")
    if _SEVERAL.search(target):
        raise InvalidInput("target", "must be one URL, without spaces; make a channel for each receiver")
    if (scheme := target.partition("://")[0].lower()) in LOCAL_SCHEMES:
        raise InvalidInput(
            "target", f"must lead somewhere over the network; {scheme}:// is for the server's own machine"
        )


def _addresses(target: str) -> list[str]:
    """Each once, or it would get the mail twice."""
    return list(dict.fromkeys(one.strip() for one in target.split(",") if one.strip()))

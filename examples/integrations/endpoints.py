"""One webhook and two handlers, each with the retry policy that fits its system.

| integration | reached by | policy | why |
| --- | --- | --- | --- |
| crm | webhook | exponential: 5, 30, 300 s | usually back after a moment |
| edi | handler | immediate: 5, 5, 5 s | the partner's mailbox is busy for seconds, or closed for the night |
| erp | handler | manual | a rejected posting needs a person, not a retry |
"""

from __future__ import annotations

from typing import Any, Protocol

from doorstep import Doorstep, Permanent, Received, Transient
from doorstep.schemas.endpoints import NewEndpointFields

EXPONENTIAL: Any = {"delays": (5, 30, 300), "jitter": 0, "name": "exponential", "ignore_retry_after": True}
"""The default of the program. A retry follows after exactly these delays, whatever the system asks for."""
IMMEDIATE: Any = EXPONENTIAL | {"delays": (5, 5, 5), "name": "immediate"}


def crm(url: str) -> NewEndpointFields:
    return {"name": "crm", "url": url, "event_types": ["customer.*"]}


class Partner(Protocol):
    """The mailbox of a trading partner."""

    def deposit(self, message: str) -> str:
        """Returns the partner's receipt; raises ConnectionError while the line is busy."""


class Erp(Protocol):
    def post(self, document: dict[str, object]) -> str:
        """Returns the ERP's receipt; raises ErpError with one of the ERP's own codes."""


class ErpError(Exception):
    def __init__(self, code: str, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text


ERP_CODES = {"M7-021": "INVALID_FORMAT", "SY-530": "SERVICE_UNAVAILABLE"}
"""Maps the ERP's codes to Doorstep's codes. A code that is not listed is kept as it is."""


class Integrations:
    """The handlers of this program, and the systems that they call."""

    def __init__(self, partner: Partner, erp: Erp) -> None:
        self._partner = partner
        self._erp = erp

    def declare(self, doorstep: Doorstep) -> None:
        doorstep.handler("invoice.*", name="edi", policy=IMMEDIATE)(self.send_edi)
        doorstep.handler("stock.*", name="erp", policy="manual", code_map=ERP_CODES)(self.sync_erp)

    def send_edi(self, event: Received) -> str:
        """Returns the partner's receipt. Doorstep stores the return value in the attempt log."""
        try:
            return self._partner.deposit(edi_message(event.json()))
        except ConnectionError as error:
            raise Transient("CONNECTION", "The partner's line is busy.") from error

    def sync_erp(self, event: Received) -> str:
        try:
            return self._erp.post(event.json())
        except ErpError as error:
            raise Transient(error.code, error.text) from error


def edi_message(invoice: dict[str, object]) -> str:
    """Formats an invoice as an EDI message of three segments. An invoice without a buyer can never be sent."""
    buyer = invoice.get("buyer")
    if not buyer:
        raise Permanent("INVALID_FORMAT", "The invoice names no buyer.")
    return f"BGM+380+{invoice['number']}'NAD+BY+{buyer}'MOA+77:{invoice['amount']}'"

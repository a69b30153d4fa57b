"""The partner and the ERP over HTTP, at `PARTNER_URL` and `ERP_URL`, or else at the simulated counterpart."""

from __future__ import annotations

import json
import os
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from examples.counterpart import PORT
from examples.integrations.endpoints import ErpError

_TIMEOUT_SECONDS = 10


def _url(variable: str, path: str) -> str:
    counterpart = os.environ.get("COUNTERPART_URL", f"http://127.0.0.1:{PORT}")
    return os.environ.get(variable, counterpart + path)


class Partner:
    """The partner's mailbox."""

    def deposit(self, message: str) -> str:
        try:
            return _post(_url("PARTNER_URL", "/edi"), message.encode())
        except OSError as error:
            raise ConnectionError(str(error)) from error


class Erp:
    """The ERP's interface for documents."""

    def post(self, document: dict[str, object]) -> str:
        try:
            return _post(_url("ERP_URL", "/erp"), json.dumps(document).encode())
        except HTTPError as error:
            if 400 <= error.code < 500:
                raise ErpError("M7-021", f"The ERP rejected the document ({error.code}).") from error
            raise ErpError("SY-530", f"The ERP is not available ({error.code}).") from error
        except URLError as error:
            raise ErpError("SY-530", f"The ERP cannot be reached ({error.reason}).") from error


def _post(url: str, body: bytes) -> str:
    """Returns the receipt."""
    with urlopen(Request(url, body, {"content-type": "application/json"}), timeout=_TIMEOUT_SECONDS) as response:
        return f"accepted with status {response.status}"

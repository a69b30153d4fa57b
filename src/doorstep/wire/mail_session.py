"""A conversation with a mail server: to an address that the guard lets through, over TLS, and within one deadline.

The deadline is for all of it: the handshake of TLS, each line that dribbles in, however many addresses the name has.
Only the look-up of the name is left to the system's own limits.
"""

from __future__ import annotations

import smtplib
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import unquote, urlsplit

from doorstep.errors import ConfigError, HandlerFailure, Permanent, Transient
from doorstep.model.noun import Noun
from doorstep.model.outcome import Code
from doorstep.wire.address_guard import AddressGuard
from doorstep.wire.sites import Resolve

_SPARE_SECONDS = 2.0
"""A single wait may last longer than all of them together: so the deadline always ends it, and is known to have."""
_PORTS = {"smtp": 25, "smtp+starttls": 587, "smtps": 465}


class MailServer(Noun, frozen=True, kw_only=True):
    """An SMTP server, and who the mail is from."""

    host: str
    port: int
    sender: str
    implicit_tls: bool = False
    """TLS from the first byte (`smtps`); otherwise STARTTLS where the server offers it."""
    starttls_required: bool = False
    """`smtp+starttls`, or there is a password: without TLS nothing is sent."""
    user: str = ""
    password: str = ""

    @classmethod
    def from_url(cls, url: str, sender: str) -> MailServer:
        """Of `smtp://user:password@host:port`, `smtp+starttls://…` or `smtps://…`."""
        parts = urlsplit(url)
        try:
            port = parts.port or _PORTS[parts.scheme]
        except ValueError:
            raise ConfigError("smtp_url has a port that is no number; correct DOORSTEP_SMTP_URL") from None
        return cls(
            host=parts.hostname or "",
            port=port,
            sender=sender,
            implicit_tls=parts.scheme == "smtps",
            starttls_required=parts.scheme == "smtp+starttls" or bool(parts.username),
            user=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
        )

    @property
    def domain(self) -> str:
        return self.sender.rpartition("@")[2]


@contextmanager
def mail_session(
    server: MailServer, guard: AddressGuard, timeout_seconds: float, resolve: Resolve, trust: ssl.SSLContext
) -> Iterator[smtplib.SMTP]:
    """Connected, encrypted and logged in; Transient or Permanent where that cannot be had."""
    session = _Session(server, guard, timeout_seconds, resolve, trust)
    deadline = threading.Timer(timeout_seconds, session.cut_off)
    deadline.daemon = True
    deadline.start()
    try:
        session.begin()
        yield session
        with suppress(smtplib.SMTPException, OSError):
            session.quit()  # it has taken the mail; how it says goodbye changes nothing
    except OSError:  # smtplib's own errors are among them
        if session.was_cut_off:
            raise Transient(Code.TIMEOUT, "The mail server took too long.") from None
        raise
    finally:
        deadline.cancel()
        session.close()


class _Session(smtplib.SMTP):
    """Connects only to addresses that were judged, each of them by itself."""

    def __init__(
        self, server: MailServer, guard: AddressGuard, timeout_seconds: float, resolve: Resolve, trust: ssl.SSLContext
    ) -> None:
        self._server = server
        self._guard = guard
        self._resolve = resolve
        self._trust = trust
        self._ends_at = time.monotonic() + timeout_seconds
        self._line: socket.socket | None = None
        """A second handle of the connection. TLS takes the first one over; this one can be shut down at any time."""
        self.was_cut_off = False
        super().__init__(local_hostname=server.domain, timeout=timeout_seconds)

    def begin(self) -> None:
        server = self._server
        self.connect(server.host, server.port)
        self.ehlo_or_helo_if_needed()
        if not server.implicit_tls:
            self._encrypt()
        if server.user:
            self._log_in()

    def _encrypt(self) -> None:
        if self.has_extn("starttls"):
            self.starttls(context=self._trust)
        elif self._server.starttls_required:
            raise Permanent(Code.TLS, "The mail server offers no TLS, and without it nothing is sent to it.")

    def _log_in(self) -> None:
        try:
            self.login(self._server.user, self._server.password)
        except smtplib.SMTPServerDisconnected:
            raise
        except smtplib.SMTPAuthenticationError as error:
            raise _refused_login(error.smtp_code) from None
        except smtplib.SMTPException:  # it offers no login, or none that smtplib knows
            words = "The mail server lets nobody log in; take the user out of DOORSTEP_SMTP_URL."
            raise Permanent(Code.AUTH_FAILED, words) from None

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        self._host = host  # what STARTTLS checks the certificate against
        opened = self._open(host, port)
        return self._trust.wrap_socket(opened, server_hostname=host) if self._server.implicit_tls else opened

    def _open(self, host: str, port: int) -> socket.socket:
        nowhere = Transient(Code.DNS, f"The name of the mail server, {host}, has no address.")
        try:
            addresses = self._resolve(host, port)
        except (OSError, UnicodeError):
            raise nowhere from None
        trouble: Exception = nowhere
        for address in addresses:
            refusal = self._guard.judge(address, port)
            if refusal is not None:
                trouble = Permanent(Code.BLOCKED, f"The mail server is at {address}, which is {refusal}.")
                continue
            try:
                return self._connected(address, port)
            except OSError as error:
                trouble = error
        raise trouble

    def _connected(self, address: str, port: int) -> socket.socket:
        seconds_left = self._ends_at - time.monotonic()
        if seconds_left <= 0:
            raise TimeoutError
        opened = socket.create_connection((address, port), seconds_left)
        opened.settimeout(seconds_left + _SPARE_SECONDS)
        self._line = opened.dup()
        if self.was_cut_off:  # a moment ago, when there was nothing to shut down
            opened.close()
            raise TimeoutError
        return opened

    def cut_off(self) -> None:
        """From another thread: whoever waits for the server gets an error."""
        self.was_cut_off = True
        if self._line is not None:
            with suppress(OSError):
                self._line.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        super().close()
        if self._line is not None:
            self._line.close()


def _refused_login(code: int) -> HandlerFailure:
    if code < 500:
        return Transient(Code.SERVICE_UNAVAILABLE, "The mail server cannot check the password now.")
    return Permanent(Code.AUTH_FAILED, "The mail server refuses the user or the password; correct DOORSTEP_SMTP_URL.")

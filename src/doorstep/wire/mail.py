"""E-mail over SMTP: how a mail is written, and what the server's answers mean."""

from __future__ import annotations

import smtplib
import ssl
from collections.abc import Mapping, Sequence
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import formatdate

from doorstep.errors import HandlerFailure, Permanent, Transient
from doorstep.model.noun import Noun
from doorstep.model.outcome import Code
from doorstep.policy.plain_text import one_line
from doorstep.wire.address_guard import AddressGuard
from doorstep.wire.mail_session import MailServer, mail_session
from doorstep.wire.recipients import Report
from doorstep.wire.sites import Resolve, system_resolve

_WORDS_CHARACTERS_MAX = 200
_UNALIKE = frozenset(
    {"WRONG_VERSION_NUMBER", "UNSUPPORTED_PROTOCOL", "NO_PROTOCOLS_AVAILABLE", "TLSV1_ALERT_PROTOCOL_VERSION"}
    | {"SSLV3_ALERT_HANDSHAKE_FAILURE", "TLSV1_ALERT_INSUFFICIENT_SECURITY", "DH_KEY_TOO_SMALL"}
)
"""OpenSSL's words for two that have no TLS in common. Every other trouble may be that of a server that restarts."""


class Mail(Noun, frozen=True, kw_only=True):
    to: Sequence[str]
    """Whom it names; those who have it already too."""
    subject: str
    text: str
    mail_id: str
    """The same for all attempts, so that a receiver can tell a repetition."""


def send_mail(
    server: MailServer,
    guard: AddressGuard,
    mail: Mail,
    recipients: Sequence[str],
    timeout_seconds: float,
    resolve: Resolve = system_resolve,
    trust: ssl.SSLContext | None = None,
) -> Report:
    """Hand a mail for some of its addresses to the server, and say what it answered for each. Blocks.

    Transient or Permanent where it was not even asked, or took it for nobody.
    """
    context = trust or ssl.create_default_context()
    try:
        with mail_session(server, guard, timeout_seconds, resolve, context) as session:
            return _sent(session, server, mail, recipients)
    except HandlerFailure:
        raise
    except smtplib.SMTPException as error:
        raise _failure(error) from None
    except ssl.SSLError as error:
        raise _tls_failure(error) from None
    except TimeoutError:
        raise Transient(Code.TIMEOUT, "The mail server did not answer in time.") from None
    except OSError as error:
        raise Transient(
            Code.CONNECTION, f"The mail server cannot be reached: {error.strerror or 'it hung up'}."
        ) from None


def _sent(session: smtplib.SMTP, server: MailServer, mail: Mail, recipients: Sequence[str]) -> Report:
    try:
        refusals = session.send_message(_message(server, mail), server.sender, list(recipients))
    except smtplib.SMTPRecipientsRefused as error:  # of some it may not even have been asked: it hung up before
        return _report((), error.recipients)
    return _report([one for one in recipients if one not in refusals], refusals)


def _report(sent: Sequence[str], refusals: Mapping[str, tuple[int, bytes]]) -> Report:
    answers = {address: (code, f"{code}: {_said(said)}") for address, (code, said) in refusals.items()}
    return Report(
        tuple(sent),
        {address: answer for address, (code, answer) in answers.items() if code >= 500},
        {address: answer for address, (code, answer) in answers.items() if code < 500},
    )


def _message(server: MailServer, mail: Mail) -> EmailMessage:
    message = EmailMessage()
    message["From"] = Address(display_name="Doorstep", addr_spec=server.sender)
    message["To"] = [Address(addr_spec=address) for address in mail.to]
    message["Subject"] = _header(mail.subject)
    message["Date"] = formatdate()
    message["Message-ID"] = f"<{mail.mail_id}@{server.domain}>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(mail.text)
    return message


def _header(text: str) -> str:
    """In what an endpoint is called there may be line ends, also encoded ones, which a header would decode."""
    return one_line(text)[:_WORDS_CHARACTERS_MAX].replace("=?", "= ?")


def _tls_failure(error: ssl.SSLError) -> HandlerFailure:
    if isinstance(error, ssl.SSLCertVerificationError) or error.reason in _UNALIKE:
        return Permanent(Code.TLS, f"The mail server's TLS cannot be used: {error.reason}.")
    return Transient(Code.CONNECTION, "The mail server hung up while TLS was being set up, or after it.")


def _failure(error: smtplib.SMTPException) -> HandlerFailure:
    if isinstance(error, smtplib.SMTPResponseException):
        words = f"The mail server answered {error.smtp_code}: {_said(error.smtp_error)}"
        return Permanent(Code.REJECTED, words) if error.smtp_code >= 500 else Transient(Code.SERVICE_UNAVAILABLE, words)
    if isinstance(error, smtplib.SMTPNotSupportedError):
        return Permanent(Code.REJECTED, "The mail server cannot do what is asked of it.")
    return Transient(Code.CONNECTION, "The mail server hung up.")


def _said(answer: bytes | str) -> str:
    text = answer.decode("utf-8", "replace") if isinstance(answer, bytes) else answer
    return one_line(text)[:_WORDS_CHARACTERS_MAX].strip()

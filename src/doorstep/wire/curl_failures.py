"""What curl's errors mean, in our codes and in a sentence for people. curl's own words go into the detail."""

from __future__ import annotations

import pycurl

from doorstep.model.outcome import Code, Failure

_NOT_CONNECTED = (Code.CONNECTION, "No connection could be made to the receiver.")
_BROKEN = (Code.CONNECTION, "The connection broke before the answer was complete.")
_NO_ANSWER = (Code.CONNECTION, "The receiver closed the connection without an answer.")
_CERTIFICATE = (Code.TLS, "The receiver's certificate is not valid for it.")
_HANDSHAKE = (Code.TLS, "No secure connection could be agreed upon with the receiver.")
_NO_AUTHORITIES = (Code.CONNECTION, "This machine has no usable file of trusted certificates.")
_NONSENSE = (Code.BAD_RESPONSE, "The receiver's answer is not valid HTTP.")
_BAD_URL = (Code.BLOCKED, "The endpoint's URL cannot be used.")

_TOO_LARGE = 100  # CURLE_TOO_LARGE, which pycurl has no name for

_MEANINGS: dict[int, tuple[str, str]] = {
    pycurl.E_COULDNT_CONNECT: _NOT_CONNECTED,
    pycurl.E_INTERFACE_FAILED: _NOT_CONNECTED,
    pycurl.E_GOT_NOTHING: _NO_ANSWER,
    pycurl.E_PEER_FAILED_VERIFICATION: _CERTIFICATE,
    pycurl.E_SSL_ISSUER_ERROR: _CERTIFICATE,
    pycurl.E_SSL_INVALIDCERTSTATUS: _CERTIFICATE,
    pycurl.E_SSL_PINNEDPUBKEYNOTMATCH: _CERTIFICATE,
    pycurl.E_SSL_CACERT_BADFILE: _NO_AUTHORITIES,
    pycurl.E_SSL_CONNECT_ERROR: _HANDSHAKE,
    pycurl.E_SSL_CIPHER: _HANDSHAKE,
    pycurl.E_FTP_WEIRD_SERVER_REPLY: _NONSENSE,
    pycurl.E_BAD_CONTENT_ENCODING: _NONSENSE,
    pycurl.E_UNSUPPORTED_PROTOCOL: _NONSENSE,
    _TOO_LARGE: _NONSENSE,
    pycurl.E_URL_MALFORMAT: _BAD_URL,
}


def failure_of(error: int, text: str, timeout_seconds: float) -> Failure:
    """The failure behind one of curl's errors; what is not known is a broken connection, worth another try."""
    detail = f"curl {error}: {text}"
    if error == pycurl.E_OPERATION_TIMEDOUT:
        return timeout_failure(timeout_seconds, detail)
    if error == pycurl.E_COULDNT_RESOLVE_HOST:
        return dns_failure(detail)
    code, message = _meaning(error, text)
    return Failure(code, message, detail=detail)


def timeout_failure(timeout_seconds: float, detail: str) -> Failure:
    return Failure(Code.TIMEOUT, f"The receiver gave no complete answer within {timeout_seconds:g} s.", detail=detail)


def dns_failure(detail: str) -> Failure:
    return Failure(Code.DNS, "The receiver's host name could not be resolved.", detail=detail)


def _meaning(error: int, text: str) -> tuple[str, str]:
    if error == pycurl.E_SSL_CONNECT_ERROR and _looks_cut_off(text):
        return _BROKEN
    if error == pycurl.E_UNSUPPORTED_PROTOCOL and "HTTP/0.9" not in text:
        return _BAD_URL
    return _MEANINGS.get(error, _BROKEN)


def _looks_cut_off(text: str) -> bool:
    """A handshake that was interrupted says nothing about certificates: a restart of the receiver looks like this."""
    lowered = text.lower()
    return any(sign in lowered for sign in ("syscall", "reset", "unexpected eof", "broken pipe"))

"""Checks whether a receiver is reachable, with real sockets, through the address guard, without sending a request."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_network
from pathlib import Path

import pytest

from doorstep.transports.address_guard import AddressGuard, why_unreachable
from tests.unit.transports.certificates import certificate

HERE = AddressGuard([ip_network("127.0.0.0/8")])
SECONDS = 2.0


@contextmanager
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def port_of(server: socket.socket) -> int:
    port: int = server.getsockname()[1]
    return port


def test_a_receiver_that_accepts_connections_is_reachable_and_is_sent_nothing() -> None:
    with listening() as server:
        assert why_unreachable(f"http://127.0.0.1:{port_of(server)}/hook", HERE, SECONDS) is None
        connection, _ = server.accept()
        with connection:
            assert connection.recv(1_024) == b""


def test_a_port_where_nothing_listens_is_named() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        why = why_unreachable(f"http://127.0.0.1:{port_of(silent)}/", HERE, SECONDS)
    assert why is not None
    assert "refused" in why


def test_an_address_that_the_guard_refuses_is_not_connected_to() -> None:
    with listening() as server:
        url = f"https://some.example:{port_of(server)}/"
        why = why_unreachable(url, AddressGuard(), SECONDS, resolve=lambda *_: ["127.0.0.1"])
        assert why is not None
        assert "the address guard refuses 127.0.0.1" in why
        server.settimeout(0.2)
        with pytest.raises(TimeoutError):
            server.accept()


def test_of_several_addresses_one_that_answers_is_enough() -> None:
    with listening() as server:
        url = f"http://some.example:{port_of(server)}/"
        assert why_unreachable(url, HERE, SECONDS, resolve=lambda *_: ["10.0.0.1", "127.0.0.1"]) is None


def test_a_name_without_an_address_is_named() -> None:
    def unknown(host: str, port: int) -> list[str]:
        raise socket.gaierror(-2, "Name or service not known")

    why = why_unreachable("https://nowhere.example/", AddressGuard(), SECONDS, resolve=unknown)
    assert why == "the name nowhere.example has no address: [Errno -2] Name or service not known"


def test_a_url_that_cannot_be_an_endpoint_s_says_why() -> None:
    why = why_unreachable("http://user@shop.example/", AddressGuard(), SECONDS)
    assert why is not None
    assert why.startswith("the URL cannot be used")


@contextmanager
def shaking_hands(context: ssl.SSLContext) -> Iterator[int]:
    """A port that performs one TLS handshake."""
    with listening() as server:
        thread = threading.Thread(target=_shake_hands, args=(server, context), daemon=True)
        thread.start()
        yield port_of(server)
        thread.join(SECONDS)


def test_a_certificate_that_is_trusted_is_no_hindrance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context, trusted = certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", trusted)
    with shaking_hands(context) as port:
        assert why_unreachable(f"https://127.0.0.1:{port}/", HERE, SECONDS) is None


def test_a_certificate_that_is_not_trusted_is_a_reason(tmp_path: Path) -> None:
    context, _ = certificate(tmp_path)
    with shaking_hands(context) as port:
        why = why_unreachable(f"https://127.0.0.1:{port}/", HERE, SECONDS)
    assert why is not None
    assert "certificate verify failed" in why


def _shake_hands(server: socket.socket, context: ssl.SSLContext) -> None:
    connection, _ = server.accept()
    with connection:
        try:
            context.wrap_socket(connection, server_side=True).close()
        except OSError:
            pass

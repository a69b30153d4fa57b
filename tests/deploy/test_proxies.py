"""The configurations of reverse proxies: a real nginx in front of a real server, and Caddy's own check."""

from __future__ import annotations

import http.client
import json
import re
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from doorstep.cli.connection_limits import ConnectionLimits
from tests.deploy.programs import needed
from tests.docs.pages import ROOT
from tests.support.patience import PATIENCE_SECONDS
from tests.support.ports import free_port
from tests.support.program import ADMIN_KEY, Program, serving, wait_for

SITE = ROOT / "deploy" / "nginx" / "doorstep.conf"
CADDYFILE = ROOT / "deploy" / "caddy" / "Caddyfile"
_MAIN = """
daemon off;
pid nginx.pid;
error_log stderr;
user root;
events {}
http {
    access_log off;
    client_body_temp_path temp;
    proxy_temp_path temp;
    fastcgi_temp_path temp;
    uwsgi_temp_path temp;
    scgi_temp_path temp;
    include site.conf;
}
"""


class Nginx:
    """A running nginx, and requests to it."""

    def __init__(self, tls: int, plain: int, certificate: Path) -> None:
        self.tls, self.plain = tls, plain
        self._context = ssl.create_default_context(cafile=str(certificate))

    def ask(
        self,
        path: str,
        method: str = "GET",
        *,
        headers: Mapping[str, str] = {},
        body: object = None,
        source: str = "127.0.0.1",
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPSConnection(
            "localhost", self.tls, context=self._context, timeout=PATIENCE_SECONDS, source_address=(source, 0)
        )
        try:
            connection.request(
                method, path, body if body is None or isinstance(body, str) else json.dumps(body), dict(headers)
            )
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        finally:
            connection.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("proxy")


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Program]:
    with serving(folder, environment={"DOORSTEP_FAILED_KEYS_PER_SECOND": "0.01"}) as program:
        yield program


@pytest.fixture(scope="module")
def nginx(folder: Path, served: Program) -> Iterator[Nginx]:
    program, (tls, plain) = needed("nginx"), (free_port(), free_port())
    certify(folder)
    site = SITE.read_text()
    for old, new in (
        ("listen 443", f"listen 127.0.0.1:{tls}"),
        ("listen 80;", f"listen 127.0.0.1:{plain};"),
        ("server 127.0.0.1:8080", "server " + served.url.removeprefix("http://")),
        ("/etc/ssl/doorstep", str(folder)),
        ("doorstep.example", "localhost"),
    ):
        assert old in site
        site = site.replace(old, new)
    (folder / "site.conf").write_text(site)
    (folder / "nginx.conf").write_text(_MAIN)
    with nginx_running([program, "-p", str(folder), "-c", "nginx.conf"], folder):
        it = Nginx(tls, plain, folder / "fullchain.pem")
        wait_for(lambda: accepts(tls), (folder / "nginx.log").read_text)
        yield it


@contextmanager
def nginx_running(command: list[str], folder: Path) -> Iterator[None]:
    with open(folder / "nginx.log", "wb") as out:
        running = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        yield
    finally:
        running.terminate()
        running.wait(PATIENCE_SECONDS)


def accepts(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
    try:
        connection.connect()
        return True
    except ConnectionRefusedError:
        return False
    finally:
        connection.close()


def certify(folder: Path) -> None:
    """A certificate for localhost that nobody else has signed."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    (folder / "fullchain.pem").write_bytes(certificate.public_bytes(pem))
    (folder / "privkey.pem").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))


def test_events_are_sent_over_tls(nginx: Nginx) -> None:
    key = {"X-API-Key": ADMIN_KEY, "Content-Type": "application/json"}
    status, _, body = nginx.ask("/v1/events", "POST", headers=key, body={"event_type": "proxy.test", "payload": {}})
    assert status == 202, body


def test_cookies_of_the_console_are_restricted_to_https(nginx: Nginx) -> None:
    form, kind = (
        f"key={ADMIN_KEY}",
        {"Content-Type": "application/x-www-form-urlencoded", "Origin": "https://localhost"},
    )
    status, headers, body = nginx.ask("/console/sign-in", "POST", headers=kind, body=form)
    assert status == 303, body
    assert "secure" in headers["set-cookie"].lower()


def test_plain_http_is_redirected(nginx: Nginx) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", nginx.plain, timeout=PATIENCE_SECONDS)
    connection.request("GET", "/console?a=b", headers={"Host": "localhost"})
    answer = connection.getresponse()
    assert (answer.status, answer.headers["location"]) == (308, "https://localhost/console?a=b")
    connection.close()


def test_limits_apply_to_the_real_address_of_the_client_and_not_to_one_that_it_claims(nginx: Nginx) -> None:
    def wrong(claimed: str, source: str) -> int:
        return nginx.ask("/v1/events", headers={"X-API-Key": "wrong", "X-Forwarded-For": claimed}, source=source)[0]

    tried = [wrong(f"203.0.113.{number}", "127.0.0.2") for number in range(5)]
    assert tried[-1] == 429, "a new claimed address gives no new budget"
    assert wrong("203.0.113.0", "127.0.0.3") == 401, "another client has a budget of its own"


def test_a_proxy_closes_an_idle_connection_before_doorstep_does() -> None:
    """Otherwise it could send a request on a connection that is being closed."""
    found = re.findall(r"(?:keepalive_timeout|keepalive) (\d+)s", SITE.read_text() + CADDYFILE.read_text())
    assert len(found) == 2
    assert all(int(seconds) < ConnectionLimits().idle_seconds for seconds in found)


def test_caddy_accepts_its_configuration() -> None:
    command = [needed("caddy"), "validate", "--adapter", "caddyfile", "--config", str(CADDYFILE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.returncode == 0, done.stderr

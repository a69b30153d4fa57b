"""The addresses that are blocked by default, in every spelling, both when a URL is checked and when connecting."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from ipaddress import ip_address, ip_network

import pytest

from doorstep.errors import InvalidInput
from doorstep.model.attempt import Code
from doorstep.transports import dns_cache
from doorstep.transports.address_guard import AddressGuard
from tests.support.matrix import each_case
from tests.support.raw_receiver import answer, receiving
from tests.support.sending import a_transmission, sending_over_http

FORBIDDEN_NETWORKS = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.88.99.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/4",
    "240.0.0.0/4",
    "168.63.129.16/32",
    "::/128",
    "::1/128",
    "::/96",
    "64:ff9b:1::/48",
    "100::/64",
    "2001::/32",
    "2001:db8::/32",
    "3fff::/20",
    "2002::/16",
    "5f00::/16",
    "fc00::/7",
    "fe80::/10",
    "fec0::/10",
    "ff00::/8",
]

WRAPPED_FORBIDDEN = [
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:10.0.0.1",
    "64:ff9b::169.254.169.254",
    "64:ff9b::a00:1",
    "64:ff9b:1::8.8.8.8",
    "::127.0.0.1",
    "2002:7f00:1::1",
    "2001:0:7f00:1::",
    "fe80::1%eth0",
    "4000::1",
    "::ffff:0:127.0.0.1",
]

PUBLIC = [
    "1.1.1.1",
    "8.8.8.8",
    "9.255.255.255",
    "11.0.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.1",
    "168.63.129.15",
    "172.15.255.255",
    "172.32.0.0",
    "192.0.1.0",
    "223.255.255.255",
    "2606:4700::1111",
    "2001:4860:4860::8888",
    "64:ff9b::8.8.8.8",
    "::ffff:8.8.8.8",
]

GUARD = AddressGuard()


@each_case("network", FORBIDDEN_NETWORKS)
def test_the_first_last_and_a_middle_address_of_each_forbidden_network_are_refused(network: str) -> None:
    addresses = ip_network(network)
    middle = addresses.network_address + addresses.num_addresses // 2
    for address in (addresses.network_address, middle, addresses.broadcast_address):
        assert GUARD.judge(address, 443), address


@each_case("address", WRAPPED_FORBIDDEN)
def test_a_forbidden_address_inside_another_form_is_refused(address: str) -> None:
    assert GUARD.judge(address, 443)


@each_case("address", PUBLIC)
def test_public_addresses_are_let_through_up_to_the_edges_of_the_table(address: str) -> None:
    assert GUARD.judge(address, 443) is None


def test_python_s_own_idea_of_a_global_address_would_not_do() -> None:
    metadata = ip_address("64:ff9b::169.254.169.254")
    assert metadata.is_global and GUARD.judge(metadata, 80)


def test_an_allowed_range_is_let_through_in_each_of_its_forms_and_nothing_beside_it() -> None:
    guard = AddressGuard([ip_network("10.1.0.0/16"), ip_network("fd00::/8")])
    for address in ("10.1.2.3", "::ffff:10.1.2.3", "fd00::1"):
        assert guard.judge(address, 443) is None
    for address in ("10.2.0.1", "127.0.0.1", "fc00::1", "::1"):
        assert guard.judge(address, 443)


def test_plain_http_is_refused_outside_the_allowed_ranges_unless_it_is_allowed_everywhere() -> None:
    guard = AddressGuard([ip_network("10.1.0.0/16")])
    assert guard.judge("8.8.8.8", 80, plain=True) == "plain http is not allowed"
    assert guard.judge("10.1.2.3", 80, plain=True) is None
    assert AddressGuard(allow_http=True).judge("8.8.8.8", 80, plain=True) is None
    assert AddressGuard(allow_http=True).judge("10.1.2.3", 80, plain=True)


def test_the_service_s_own_address_is_refused_even_inside_an_allowed_range() -> None:
    allow = [ip_network("127.0.0.0/8")]
    guard = AddressGuard(allow, own_addresses=[("127.0.0.1", 8080)])
    assert guard.judge("127.0.0.1", 8080) and guard.judge("::ffff:127.0.0.1", 8080)
    assert guard.judge("127.0.0.1", 8081) is None
    listening_everywhere = AddressGuard(allow, own_addresses=[("0.0.0.0", 8080)])
    assert listening_everywhere.judge("127.0.0.1", 8080)
    assert listening_everywhere.judge("127.0.0.1", 8081) is None
    assert listening_everywhere.judge("8.8.8.8", 8080) is None


# -- URLs ----------------------------------------------------------------------------------------------------

SPELLINGS_OF_LOOPBACK = [
    "https://127.0.0.1/",
    "https://127.1/",
    "https://127.0.1/",
    "https://2130706433/",
    "https://0x7f000001/",
    "https://017700000001/",
    "https://0177.0.0.1/",
    "https://0x7f.0.0.1/",
    "https://0x7F.1/",
    "https://0177.0x0.1/",
    "https://00000177.1/",
    "https://%31%32%37.0.0.1/",
    "https://127.0.0.1./",
    "https://127.0.0.1:8443/",
    "https://127.255.255.254/",
    "https://[::1]/",
    "https://[0:0:0:0:0:0:0:1]/",
    "https://[::ffff:127.0.0.1]/",
    "https://[::ffff:7f00:1]/",
    "https://[0000::ffff:7f00:0001]/",
    "https://[::127.0.0.1]/",
    "https://[64:ff9b::127.0.0.1]/",
    "https://[2002:7f00:1::]/",
    "https://localhost/",
    "https://LOCALHOST/",
    "https://localhost./",
    "https://a.localhost/",
    "https://0/",
    "https://0.0.0.0/",
    "https://[::]/",
    "HTTPS://127.0.0.1",
    "https://127.0.0.1?x",
    "https://127.0.0.1#x",
]

UNICODE_SPELLINGS = ["https://①②⑦.⓪.⓪.①/", "https://１２７.0.0.1/", "https://127。0。0。1/", "https://ⓛocalhost/"]


@each_case("url", SPELLINGS_OF_LOOPBACK)
def test_every_spelling_of_a_forbidden_address_is_refused_as_such(url: str) -> None:
    with pytest.raises(InvalidInput, match="must not point to") as caught:
        GUARD.check_url(url)
    assert caught.value.field == "url" and "DOORSTEP_ALLOW_ADDRESSES" in caught.value.message


@each_case("url", UNICODE_SPELLINGS)
def test_spellings_outside_ascii_are_refused_altogether(url: str) -> None:
    with pytest.raises(InvalidInput, match="must be ASCII"):
        GUARD.check_url(url)


@each_case(
    "url",
    [
        "",
        "shop.example/hook",
        "//shop.example/",
        "ftp://shop.example/",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "https://",
        "https:///path",
        "https:shop.example",
        "https://?x",
        "https://user@shop.example/",
        "https://user:password@shop.example/",
        "https://shop.example@127.0.0.1/",
        "https://shop.example\\@127.0.0.1/",
        "https://shop.example/a b",
        " https://shop.example/",
        "https://shop.example/\n",
        "https://shop.example/\r\nx: y",
        "https://shop\x00.example/",
        "https://shop\t.example/",
        "https://shop.example:0/",
        "https://shop.example:65536/",
        "https://shop.example:-1/",
        "https://shop.example:80a/",
        "https://[::1/",
        "https://[fe80::1%25eth0]/",
        "https://256.1.1.1/",
        "https://1.2.3.4.5/",
        "https://0x1ffffffff/",
        "https://shop.example/" + "a" * 2_048,
    ],
)
def test_what_cannot_be_an_endpoint_s_url_is_refused_and_the_field_is_named(url: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        AddressGuard(allow_http=True).check_url(url)
    assert caught.value.field == "url"


def test_a_url_is_normalised_so_that_what_was_checked_is_what_is_sent_to() -> None:
    parsed = GUARD.check_url("HTTPS://Shop.Example.:8443/A/../b?c=%20#d")
    assert parsed.url == "https://shop.example:8443/b?c=%20"
    assert (parsed.plain, parsed.host, parsed.port, parsed.address) == (False, "shop.example", 8443, None)
    assert AddressGuard([ip_network("127.0.0.0/8")]).check_url("https://0x7f.1/x").url == "https://127.0.0.1/x"
    assert GUARD.check_url("https://shop.example").port == 443
    assert GUARD.check_url(parsed.url) == parsed


def test_plain_http_urls_need_an_allowed_range_or_the_setting() -> None:
    with pytest.raises(InvalidInput, match="must begin with https://"):
        GUARD.check_url("http://shop.example/")
    with pytest.raises(InvalidInput, match="plain http"):
        AddressGuard([ip_network("10.0.0.0/8")]).check_url("http://8.8.8.8/")
    assert AddressGuard([ip_network("10.0.0.0/8")]).check_url("http://10.0.0.1/").plain
    assert AddressGuard(allow_http=True).check_url("http://shop.example/").plain


# -- connecting ----------------------------------------------------------------------------------------------


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A listening socket that must not receive a connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        yield listening
        with pytest.raises(BlockingIOError):
            listening.accept()


SPELLINGS_TO_CONNECT = ["127.0.0.1", "0x7f000001", "2130706433", "0177.1", "localhost", "[::ffff:127.0.0.1]", "0"]


@each_case("host", SPELLINGS_TO_CONNECT)
async def test_no_connection_is_made_to_a_refused_address_however_it_is_spelled(
    host: str, listener: socket.socket
) -> None:
    port = listener.getsockname()[1]
    async with sending_over_http(AddressGuard(allow_http=True)) as sending:
        reply = await sending.one(a_transmission(f"http://{host}:{port}/"))
    assert reply.failure is not None and reply.failure.code == Code.BLOCKED
    assert "refused" in reply.failure.message and reply.status is None


async def test_the_listener_would_have_seen_a_connection_to_an_allowed_address(listener: socket.socket) -> None:
    """The control for the test above: the same connection arrives when it is allowed."""
    port = listener.getsockname()[1]
    async with sending_over_http() as sending:
        await sending.one(a_transmission(f"http://127.0.0.1:{port}/", timeout_seconds=0.05))
    connection, _ = listener.accept()
    connection.close()


async def test_plain_http_to_an_address_that_is_not_in_the_list_is_refused_when_connecting() -> None:
    async with receiving(host="127.0.0.2") as receiver:
        guard = AddressGuard([ip_network("127.0.0.1/32")])
        async with sending_over_http(guard) as sending:
            reply = await sending.one(a_transmission(receiver.url))
        assert reply.failure is not None and reply.failure.code == Code.BLOCKED and receiver.connections == 0


async def test_a_name_that_answers_differently_later_is_judged_anew_at_each_connection(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """127.0.0.2 stands in for a public address here, and 127.0.0.1 for a private one."""
    monkeypatch.setattr(dns_cache, "_USABLE_SECONDS", 0)  # every attempt resolves the name again
    answers = iter([["127.0.0.2"], ["127.0.0.1"], ["127.0.0.2"]])
    guard = AddressGuard([ip_network("127.0.0.2/32")])
    closing = answer("200 OK", b"", "Connection: close")
    port = listener.getsockname()[1]
    async with receiving(lambda _: closing, host="127.0.0.2", port=port) as receiver:
        async with sending_over_http(guard, resolve=lambda *_: next(answers)) as sending:
            target = f"http://shop.example:{port}/"
            public, private, public_again = [await sending.one(a_transmission(target)) for _ in range(3)]
        assert (public.status, public_again.status, receiver.connections) == (200, 200, 2)
        assert private.failure is not None and private.failure.code == Code.BLOCKED


async def test_of_several_answers_of_a_name_only_the_permitted_ones_are_connected_to(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    guard = AddressGuard([ip_network("127.0.0.2/32")])
    async with receiving(host="127.0.0.2", port=port) as receiver:
        async with sending_over_http(guard, resolve=lambda *_: ["127.0.0.1", "::1", "127.0.0.2"]) as sending:
            reply = await sending.one(a_transmission(f"http://shop.example:{port}/"))
        assert (reply.status, receiver.connections) == (200, 1)


async def test_a_name_of_which_every_answer_is_refused_is_blocked(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    async with sending_over_http(AddressGuard(), resolve=lambda *_: ["10.0.0.1", "127.0.0.1", "fd00::1"]) as sending:
        reply = await sending.one(a_transmission(f"https://shop.example:{port}/"))
    assert reply.failure is not None and reply.failure.code == Code.BLOCKED

"""Which errors mean that this process or machine lacks something, and which are the receiver's."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from doorstep.transports.shortages import shortage_now, shortage_of


def proc(folder: Path, in_use: int, waiting: int) -> Path:
    """A `/proc` of a machine with 1,000 local ports."""
    (folder / "sys/net/ipv4").mkdir(parents=True)
    (folder / "net").mkdir()
    (folder / "sys/net/ipv4/ip_local_port_range").write_text("10000\t10999\n")
    sockets = f"sockets: used 290\nTCP: inuse {in_use} orphan 0 tw {waiting} alloc 9 mem 1\nUDP: inuse 5000 mem 1\n"
    (folder / "net/sockstat").write_text(sockets)
    return folder


@pytest.mark.parametrize("lacking", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
def test_descriptors_and_memory_are_ours(lacking: int) -> None:
    assert "free" in shortage_of(OSError(lacking, "none"))
    assert shortage_now(lacking) == shortage_of(OSError(lacking, "none"))


@pytest.mark.parametrize("error", [errno.ECONNREFUSED, errno.ENETUNREACH, errno.EAFNOSUPPORT, 0])
def test_other_errors_are_not(error: int) -> None:
    assert shortage_of(OSError(error, "")) == shortage_now(error) == ""


def test_without_free_ports_an_address_that_cannot_be_assigned_is_ours_and_otherwise_it_is_unreachable(
    tmp_path: Path,
) -> None:
    assert (
        shortage_now(errno.EADDRNOTAVAIL, proc(tmp_path / "full", 400, 550)) == "this machine has no free local ports"
    )
    assert shortage_now(errno.EADDRNOTAVAIL, proc(tmp_path / "free", 400, 50)) == ""
    assert shortage_now(errno.EADDRNOTAVAIL, tmp_path / "no such system") == ""

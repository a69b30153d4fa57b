"""The checks that `doorstep doctor` makes of the machine: disk, folder and port."""

from __future__ import annotations

import socket
from pathlib import Path

from doorstep.cli.doctor import OK, PROBLEM, disk_space, disk_speed, port


def test_a_disk_with_room_is_fine_and_one_without_is_a_problem(tmp_path: Path) -> None:
    assert disk_space(tmp_path, free_bytes_min=1).verdict == OK
    full = disk_space(tmp_path, free_bytes_min=2**80)
    assert full.verdict == PROBLEM
    assert full.remedy


def test_a_quick_disk_is_fine_and_a_slow_one_is_a_problem(tmp_path: Path) -> None:
    assert disk_speed(tmp_path, fsync_seconds_max=60).verdict == OK
    slow = disk_speed(tmp_path, fsync_seconds_max=0)
    assert slow.verdict == PROBLEM
    assert slow.remedy
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"


def test_a_folder_that_is_not_there_yet_is_judged_by_the_one_it_will_be_in(tmp_path: Path) -> None:
    assert disk_space(tmp_path / "a" / "b").verdict == OK
    assert disk_speed(tmp_path / "a" / "b", fsync_seconds_max=60).verdict == OK
    assert list(tmp_path.iterdir()) == []


def test_data_that_is_elsewhere_is_no_problem_of_this_disk() -> None:
    assert (disk_space(None).verdict, disk_speed(None).verdict) == (OK, OK)


def test_a_port_is_free_or_ours_or_a_problem() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        assert port("127.0.0.1", number, lambda: True).verdict == OK
        assert port("127.0.0.1", number, lambda: False).verdict == PROBLEM
    assert port("127.0.0.1", 0, lambda: False).verdict == OK


def test_a_finding_is_one_line_and_a_problem_has_a_second_with_what_to_do(tmp_path: Path) -> None:
    assert "\n" not in disk_space(tmp_path, free_bytes_min=1).text.plain
    assert "→ make room" in disk_space(tmp_path, free_bytes_min=2**80).text.plain.splitlines()[1]

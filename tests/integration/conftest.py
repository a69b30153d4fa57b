"""One running program, shared by all tests that only send requests to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.program import Program, serving
from tests.support.receiver import Receiver, receiving


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    with serving(tmp_path_factory.mktemp("served")) as program:
        yield program


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as it:
        yield it

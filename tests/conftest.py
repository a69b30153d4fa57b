"""Fixtures that every test may ask for."""

import gc
import signal

import hypothesis

hypothesis.settings.register_profile("any machine", deadline=None)  # one example may wait for its turn on a busy one
hypothesis.settings.load_profile("any machine")

pytest_plugins = ["tests.support.fixtures_postgres"]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background job ignores Ctrl-C, and so would every program that the tests start and stop with it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """What was collected stays until the end: looked at again for garbage, it takes a tenth of the CPU of all tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)

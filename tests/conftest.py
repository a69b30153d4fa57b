"""Fixtures that are available to every test."""

import gc
import signal

import hypothesis

hypothesis.settings.register_profile("any machine", deadline=None)  # an example may have to wait for CPU time
hypothesis.settings.load_profile("any machine")

pytest_plugins = ["tests.support.fixtures_postgres", "tests.support.fixtures_dynamodb"]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts background jobs with Ctrl-C ignored. Programs that the tests start and stop with it would inherit
    # this.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Exclude the collected tests from garbage collection, which otherwise takes a tenth of the CPU of all tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)

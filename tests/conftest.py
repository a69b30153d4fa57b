"""Fixtures that every test may ask for."""

import signal

pytest_plugins = ["tests.fixtures_postgres"]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background job ignores Ctrl-C, and so would every program that the tests start and stop with it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

"""How the programs of the profiles start and stop their server."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

from examples.serving import exit_code

_ENDS_AFTER_SECONDS = 60


def test_a_signal_that_interrupts_no_wait_still_stops_the_server() -> None:
    command = [sys.executable, "-c", f"import time; time.sleep({_ENDS_AFTER_SECONDS})"]
    server = subprocess.Popen(command)
    before = signal.signal(signal.SIGTERM, lambda *_: server.terminate())

    def arrives_in_another_thread() -> None:
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    arrival = threading.Timer(0.2, arrives_in_another_thread)
    arrival.start()
    try:
        assert exit_code(server) == -signal.SIGTERM
    finally:
        signal.signal(signal.SIGTERM, before)
        server.kill()
        arrival.join()

"""A function in a process of its own, called as Lambda calls it: `python -m tests.aws.function_process MODULE`.

It reads one event as JSON from each line of standard input. The lines of its log are followed by a line with the result.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Self

_RESULT = "result of the call: "
_REMAINING_MILLISECONDS = 60_000


class FunctionProcess:
    """Use as a context manager; `lines` has everything that the function has logged."""

    def __init__(self, module: str, environ: Mapping[str, str]) -> None:
        self.lines: list[dict[str, Any]] = []
        function = {"AWS_LAMBDA_FUNCTION_NAME": module, "PYTHONUNBUFFERED": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, module],
            env={**os.environ, **function, **environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def call(self, event: Mapping[str, Any]) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(event) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith(_RESULT):
                return json.loads(line.removeprefix(_RESULT))
            self.lines.append(json.loads(line))
        raise AssertionError(f"the function ended with exit code {self._process.wait()}")

    def events(self, name: str) -> list[dict[str, Any]]:
        """The lines of this kind."""
        return [line for line in self.lines if line["event"] == name]

    def metric(self, name: str) -> list[float]:
        """All values of a metric, in order."""
        values = [line[name] for line in self.events("metrics") if name in line]
        return [one for value in values for one in (value if isinstance(value, list) else [value])]


class Context:
    """The part of Lambda's context object that the functions use."""

    def get_remaining_time_in_millis(self) -> int:
        return _REMAINING_MILLISECONDS


if __name__ == "__main__":
    handler = import_module(sys.argv[1]).handler
    for given in sys.stdin:
        print(_RESULT + json.dumps(handler(json.loads(given), Context())), flush=True)

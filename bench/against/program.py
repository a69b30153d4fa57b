"""The program behind `handlers`: each revision runs a copy of it with its own `doorstep serve --app`.

It uses only the public names of the library, and marks each call with one byte in a file that the bench watches.
"""

from __future__ import annotations

import os

from doorstep import Doorstep

doorstep = Doorstep()
_calls = os.open("calls", os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@doorstep.handler("bench")
async def job(event: object) -> None:
    os.write(_calls, b".")

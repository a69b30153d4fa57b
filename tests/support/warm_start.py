"""Starts Python programs without the second of CPU that their imports take, by forking a process that has them loaded.

A forked program is a normal process with its own memory, environment, folder, arguments and output. It receives
signals, can be killed, and has its own exit code. Only its imports are already done. Tests of the start itself (import
times, `LD_PRELOAD`, strace) use `subprocess` to start a new interpreter; WARM_STARTS=0 does that for all programs.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from tests.support.patience import PATIENCE_SECONDS

_ROOT = Path(__file__).parents[2]
_REQUEST_BYTES_MAX = 1 << 20
_NEEDS_A_NEW_INTERPRETER = frozenset({"LD_PRELOAD", "PYTHONHASHSEED", "PYTHONOPTIMIZE", "COVERAGE_PROCESS_START"})


def start_python(
    arguments: Sequence[str],
    *,
    cwd: Path | str | None = None,
    env: Mapping[str, str] | None = None,
    stdin: int | IO[bytes] | None = subprocess.DEVNULL,
    stdout: int | IO[bytes] | None = None,
    stderr: int | IO[bytes] | None = None,
    start_new_session: bool = False,
) -> Process:
    """Start `python ARGUMENTS`. The arguments begin with `-m module`, `-c code` or a file name."""
    environment = dict(os.environ if env is None else env)
    if not _can_be_warm(environment):
        return subprocess.Popen(
            [sys.executable, *arguments],
            cwd=cwd,
            env=environment,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=start_new_session,
        )
    request = {"arguments": list(arguments), "cwd": str(cwd or Path.cwd()), "env": environment}
    return WarmProcess(request | {"session": start_new_session}, stdin, stdout, stderr)


def run_python(
    arguments: Sequence[str],
    *,
    cwd: Path | str | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
) -> subprocess.CompletedProcess[bytes]:
    """Run `python ARGUMENTS` until it exits, and return its result."""
    pipe = subprocess.PIPE
    process = start_python(arguments, cwd=cwd, env=env, stdin=pipe, stdout=pipe, stderr=pipe)
    code, out, err = end_of(process, stdin)
    return subprocess.CompletedProcess(list(arguments), code, out, err)


def end_of(process: Process, stdin: bytes = b"") -> tuple[int, bytes, bytes]:
    """The exit code of a process, and what it wrote to pipes that nobody else reads."""
    said: dict[str, bytes] = {}
    readers = [
        threading.Thread(target=lambda name=name, stream=stream: said.__setitem__(name, stream.read()), daemon=True)
        for name, stream in (("out", process.stdout), ("err", process.stderr))
    ]
    for reader in readers:
        reader.start()
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(stdin)
        process.stdin.close()
    try:
        code = process.wait(PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    for reader in readers:
        reader.join(PATIENCE_SECONDS)
    return code, said["out"], said["err"]


class WarmProcess:
    """The part of `subprocess.Popen` that tests use, for a process that is a child of the warm process, not of ours."""

    def __init__(
        self,
        request: Mapping[str, Any],
        stdin: int | IO[bytes] | None,
        stdout: int | IO[bytes] | None,
        stderr: int | IO[bytes] | None,
    ) -> None:
        self.returncode: int | None = None
        self._lock = threading.Lock()
        theirs: list[int] = []
        self.stdin = self._reached(stdin, 0, theirs)
        self.stdout = self._reached(stdout, 1, theirs)
        self.stderr = self._reached(self.stdout if stderr == subprocess.STDOUT else stderr, 2, theirs)
        self._status, written = os.pipe()
        _server().ask(request, [*theirs, written])
        for descriptor in (*theirs, written):
            os.close(descriptor)
        self.pid = int(self._line() or 0)
        assert self.pid, "the warm process did not start it"

    def poll(self) -> int | None:
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _reached(self, stream: int | IO[bytes] | None, number: int, theirs: list[int]) -> IO[bytes] | None:
        """Open the process's standard stream with this number. For a pipe, return our end."""
        if stream == subprocess.PIPE:
            reading, writing = os.pipe()
            theirs.append(reading if number == 0 else writing)
            return open(
                writing if number == 0 else reading, "wb" if number == 0 else "rb", buffering=0 if number == 0 else -1
            )
        if stream == subprocess.DEVNULL:
            theirs.append(os.open(os.devnull, os.O_RDWR))
        elif stream is None:
            theirs.append(os.dup(number))
        else:
            theirs.append(os.dup(stream if isinstance(stream, int) else stream.fileno()))
        return None

    def _look(self, timeout: float | None) -> int | None:
        with self._lock:
            if self.returncode is None and select.select([self._status], [], [], timeout)[0]:
                line = self._line()
                os.close(self._status)
                self.returncode = int(line) if line else -signal.SIGKILL  # its reporter was killed
            return self.returncode

    def _line(self) -> str:
        """Read one line from the warm process, byte by byte, because the next line may follow at any moment."""
        line = b""
        while (byte := os.read(self._status, 1)) not in (b"", b"\n"):
            line += byte
        return line.decode()


Process = subprocess.Popen[bytes] | WarmProcess


def _can_be_warm(environment: Mapping[str, str]) -> bool:
    return (
        sys.platform == "linux"
        and os.environ.get("WARM_STARTS", "1") != "0"
        and not _NEEDS_A_NEW_INTERPRETER & environment.keys()
        and not _customised(environment.get("PYTHONPATH", ""))
    )


def _customised(path: str) -> bool:
    """Whether a sitecustomize.py would run before the program."""
    return any(Path(entry, "sitecustomize.py").exists() for entry in path.split(os.pathsep) if entry)


class _Server:
    """Our side of the warm process, which has all modules loaded and ends when this process ends."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * _REQUEST_BYTES_MAX)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.warm_start", str(theirs.fileno())],
                cwd=_ROOT,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        atexit.register(self.close)

    def ask(self, request: Mapping[str, Any], descriptors: list[int]) -> None:
        socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


_starting = threading.Lock()
_servers: dict[int, _Server] = {}


def _server() -> _Server:
    with _starting:
        if os.getpid() not in _servers:
            _servers[os.getpid()] = _Server()
        return _servers[os.getpid()]


# -- the warm process ------------------------------------------------------------------------------------------


class _Warm:
    """Forks a process for each request, and reports its process id and exit code."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._statuses: dict[int, int] = {}
        self._woken, self._waking = os.pipe()
        os.set_blocking(self._waking, False)
        self._path = [entry for entry in sys.path if entry not in ("", str(_ROOT))]
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._waking, warn_on_full_buffer=False)

    def serve(self) -> dict[str, Any] | None:
        """In the warm process, serve until no client is left. In each child, return the request to carry out."""
        while True:
            ready, _, _ = select.select([self._requests, self._woken], [], [])
            if self._woken in ready:
                os.read(self._woken, 4_096)
                self._reap()
            if self._requests in ready:
                message, descriptors, _, _ = socket.recv_fds(self._requests, _REQUEST_BYTES_MAX, 4)
                if not message:
                    return None
                if request := self._fork(json.loads(message), descriptors):
                    return request

    def _fork(self, request: dict[str, Any], descriptors: list[int]) -> dict[str, Any] | None:
        *streams, status = descriptors
        if pid := os.fork():
            for descriptor in streams:
                os.close(descriptor)
            os.write(status, b"%d\n" % pid)
            self._statuses[pid] = status
            return None
        self._become(request, streams)
        return request

    def _become(self, request: dict[str, Any], streams: list[int]) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if request["session"]:
            os.setsid()
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
        self._requests.detach()
        os.closerange(3, 1_024)
        os.environ.clear()
        os.environ.update(request["env"])
        os.chdir(request["cwd"])
        added = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
        sys.path[:] = [*added, *self._path]

    def _reap(self) -> None:
        while self._statuses:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            descriptor = self._statuses.pop(pid)
            with contextlib.suppress(BrokenPipeError):
                os.write(descriptor, b"%d\n" % os.waitstatus_to_exitcode(status))
            os.close(descriptor)


def _load() -> None:
    """Import every module that our programs import sooner or later."""
    import importlib
    import pkgutil

    import doorstep

    left_out = {"__main__", "child", "env"}
    for found in pkgutil.walk_packages(doorstep.__path__, "doorstep."):
        if found.name.rpartition(".")[2] not in left_out:
            importlib.import_module(found.name)
    for name in (
        "uvicorn.logging",
        "uvicorn.loops.auto",
        "uvicorn.lifespan.on",
        "uvicorn.protocols.http.httptools_impl",
    ):
        importlib.import_module(name)


def _obey(arguments: list[str]) -> None:
    """Do what `python ARGUMENTS` does."""
    import runpy

    first, *rest = arguments
    if first == "-m":
        sys.argv = rest
        sys.path.insert(0, os.getcwd())
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.argv = ["-c", *rest[1:]]
        sys.path.insert(0, "")
        namespace = {"__name__": "__main__", "__builtins__": __builtins__}
        exec(compile(rest[0], "<string>", "exec"), namespace)  # noqa: S102
    else:
        sys.argv = arguments
        sys.path.insert(0, str(Path(first).absolute().parent))
        runpy.run_path(first, run_name="__main__")


def _main() -> None:
    _load()
    gc.collect()
    gc.freeze()  # forked processes share the loaded modules, unless the garbage collector writes to them
    request = _Warm(socket.socket(fileno=int(sys.argv[1]))).serve()
    if request is not None:
        os._exit(_ended(request["arguments"]))


def _ended(arguments: list[str]) -> int:
    """Run a program to its end and return its exit code. Skips the interpreter's teardown, which takes longest."""
    code = 0
    try:
        _obey(arguments)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if not isinstance(end.code, int | None):
            print(end.code, file=sys.stderr)
    except KeyboardInterrupt:
        code = -signal.SIGINT
    except Exception:  # noqa: BLE001
        sys.excepthook(*sys.exc_info())
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    if code == -signal.SIGINT:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    return code


if __name__ == "__main__":
    _main()

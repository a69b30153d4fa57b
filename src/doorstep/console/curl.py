"""A request as a command for a shell: what is pasted sends the same bytes, and does nothing else. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

BODY_BYTES_MAX = 96 * 1024
"""A larger body is read from a file: Linux gives one argument of a command 128 KiB."""


def curl_command(url: str, header_lines: bytes, body: bytes, file_name: str) -> str:
    """`header_lines` as the attempt log has them, one a line; `file_name` is where a large body is expected."""
    words = ["curl --globoff --include --request POST", f"--url {quoted(url.encode())}"]
    words += [f"--header {quoted(line)}" for line in _headers(header_lines)]
    if needs_file(body):
        words += ["--header Expect:", f"--data-binary {quoted(b'@' + file_name.encode())}"]
    else:
        words.append(f"--data-raw {quoted(body)}")
    return " \\\n  ".join(words)


def needs_file(body: bytes) -> bool:
    """Whether the command reads the body from a file, which has to be there."""
    return len(body) > BODY_BYTES_MAX


def quoted(text: bytes) -> str:
    """One word of a shell, whatever is in it. Bytes that are no plain text are spelled out (`$'\\x1b'`, as bash, zsh and
    ksh have it), so that nothing invisible is pasted, and no terminal takes a byte for a key."""
    try:
        plain = text.decode()
    except UnicodeDecodeError:
        return _spelled(text)
    return shlex.quote(plain) if plain.isprintable() else _spelled(text)


def _spelled(text: bytes) -> str:
    return "$'" + text.decode("latin-1").translate(_SPELLING) + "'"


_SPELLING = {byte: f"\\x{byte:02x}" for byte in range(256) if not 0x20 <= byte < 0x7F or chr(byte) in "'\\"}
"""Of the bytes that are not harmless."""


def _headers(lines: bytes) -> Iterator[bytes]:
    """As curl wants them: `Name;` sends an empty value, `Name:` would send none at all, and `@` names a file."""
    for line in lines.splitlines():
        name, colon, value = line.partition(b":")
        if colon and not line.startswith(b"@"):
            yield line if value.strip() else name + b";"

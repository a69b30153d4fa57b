"""Shrinks a screenshot: keeps 256 of its colours, and replaces all others with the nearest of them.

Text on a plain background has two thousand colours, almost all of them in its outlines. The difference is invisible, and
the file has half the size.
"""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count

Colour = tuple[int, int, int]
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOURS_MAX = 256
_RGB, _PALETTE = 2, 3


def shrunk(png: bytes) -> bytes:
    """The same image with a palette. Reads PNG files as Chromium writes them: three bytes a pixel, not interlaced."""
    width, height, rows = _pixels(png)
    common = [colour for colour, _ in Counter(pixel for row in rows for pixel in row).most_common()]
    palette = _palette(common)
    place = {colour: _nearest(colour, palette) for colour in common}
    lines = b"".join(b"\0" + bytes(map(place.__getitem__, row)) for row in rows)
    return b"".join(
        (
            _SIGNATURE,
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, _PALETTE, 0, 0, 0)),
            _chunk(b"PLTE", bytes(part for colour in palette for part in colour)),
            _chunk(b"IDAT", zlib.compress(lines, 9)),
            _chunk(b"IEND", b""),
        )
    )


def _pixels(png: bytes) -> tuple[int, int, list[list[Colour]]]:
    chunks = list(_chunks(png))
    width, height, depth, kind = struct.unpack(">IIBB", chunks[0][1][:10])
    assert (depth, kind) == (8, _RGB), f"a picture of three bytes a pixel, got {depth} bits of kind {kind}"
    raw = zlib.decompress(b"".join(content for name, content in chunks if name == b"IDAT"))
    rows, before, stride = [], bytearray(3 * width), 3 * width + 1
    for start in range(0, height * stride, stride):
        before = _unfiltered(raw[start], bytearray(raw[start + 1 : start + stride]), before)
        rows.append(list(zip(before[0::3], before[1::3], before[2::3], strict=True)))
    return width, height, rows


def _unfiltered(filter_type: int, line: bytearray, above: bytearray) -> bytearray:
    """A PNG stores each byte as its difference from a prediction, which is computed from the bytes to its left and
    above."""
    guess = _GUESSES[filter_type]
    for at in range(len(line)) if filter_type else ():
        left, corner = (line[at - 3], above[at - 3]) if at >= 3 else (0, 0)
        line[at] = (line[at] + guess(left, above[at], corner)) & 255
    return line


def _paeth(left: int, above: int, corner: int) -> int:
    """The one of the three that is nearest to left + above - corner."""
    far_left, far_above, far_corner = abs(above - corner), abs(left - corner), abs(left + above - 2 * corner)
    if far_left <= far_above and far_left <= far_corner:
        return left
    return above if far_above <= far_corner else corner


_GUESSES: tuple[Callable[[int, int, int], int], ...] = (
    lambda left, above, corner: 0,
    lambda left, above, corner: left,
    lambda left, above, corner: above,
    lambda left, above, corner: (left + above) // 2,
    _paeth,
)


def _palette(common: list[Colour]) -> list[Colour]:
    """The most common colours, without near duplicates; the tolerance is the smallest at which the palette is not too
    large."""
    for tolerance in count(step=8):
        palette: list[Colour] = []
        for colour in common:
            if all(_distance(colour, one) > tolerance for one in palette):
                palette.append(colour)
            if len(palette) > _COLOURS_MAX:
                break
        else:
            return palette
    raise AssertionError("some tolerance leaves one colour")


def _nearest(colour: Colour, palette: list[Colour]) -> int:
    return min(range(len(palette)), key=lambda at: _distance(colour, palette[at]))


def _distance(one: Colour, other: Colour) -> int:
    return (one[0] - other[0]) ** 2 + (one[1] - other[1]) ** 2 + (one[2] - other[2]) ** 2


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(_SIGNATURE)
    while at < len(png):
        size, name = struct.unpack(">I4s", png[at : at + 8])
        yield name, png[at + 8 : at + 8 + size]
        at += 12 + size


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

"""Numbers as people read them."""

from __future__ import annotations

import math


def bytes_text(size_bytes: float) -> str:
    """`1,024 B` below 10 KiB, then three or more digits and a binary unit."""
    value, unit = float(size_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        if abs(value) < 10_240:
            break
        value, unit = value / 1024, larger
    return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"


def age_text(seconds: float) -> str:
    """`0.4 s`, `12 s`, `3 min`, `5 h`, `2 d`."""
    if not math.isfinite(seconds):
        return "never"
    value = max(0.0, seconds)
    for limit, divisor, unit in ((100.0, 1.0, "s"), (6000.0, 60.0, "min"), (172800.0, 3600.0, "h")):
        if value < limit:
            shown = value / divisor
            return f"{shown:.1f} {unit}" if shown < 10 else f"{shown:.0f} {unit}"
    return f"{value / 86400.0:.0f} d"


def plural(count: int, name: str) -> str:
    """`1 hole`, `2 holes`."""
    return f"{count:,} {name}" if count == 1 else f"{count:,} {name}s"


def seconds_text(seconds: float) -> str:
    """Short times: `12 us`, `3.4 ms`, `1.2 s`."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} us"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"

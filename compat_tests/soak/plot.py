"""A run's figures over time as a picture (SVG)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape

from compat_tests.soak.samples import Sample
from compat_tests.soak.verdict import PROCESSES, descriptors, memory, publish_p99, threads

_WIDTH, _HEIGHT, _LEFT, _TOP = 860, 120, 60, 26
_COLOURS = ("#1f77b4", "#d95f02", "#1b9e77")

Of = Callable[[Sample], float | None]


def svg(samples: Sequence[Sample], title: str) -> str:
    """Panels under one another: each line's name and colour stand above it. A grey line marks an
    interval in which something went wrong on purpose.
    """
    panels: list[tuple[str, dict[str, Of]]] = [
        ("publish p99, ms", {"publish": publish_p99}),
        ("resident memory, MB", {process: memory(process) for process in PROCESSES}),
        ("descriptors", {process: descriptors(process) for process in PROCESSES}),
        ("threads", {process: threads(process) for process in PROCESSES}),
        ("data on the disk, MB", {"data": lambda each: each.data_mb}),
    ]
    each = _HEIGHT + _TOP + 14
    height = each * len(panels) + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH + _LEFT + 20}" height="{height}"',
        ' font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="#fff"/>',
        f'<text x="10" y="16" font-size="13">{escape(title)}</text>',
    ]
    for number, (name, lines) in enumerate(panels):
        parts += _panel(samples, name, lines, 24 + number * each)
    return "\n".join([*parts, "</svg>", ""])


def _panel(samples: Sequence[Sample], name: str, lines: dict[str, Of], top: int) -> Iterator[str]:
    found = {key: [of(sample) for sample in samples] for key, of in lines.items()}
    values = [value for line in found.values() for value in line if value is not None]
    most, end = max(values, default=1.0) or 1.0, samples[-1].at_s or 1.0
    base = top + _TOP + _HEIGHT

    def across(seconds: float) -> float:
        return _LEFT + seconds / end * _WIDTH

    for sample in samples:
        if sample.fault:
            x = across(sample.at_s)
            yield (
                f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top + _TOP}" y2="{base}" stroke="#ddd">'
                f"<title>{escape(sample.fault)}</title></line>"
            )
    yield f'<line x1="{_LEFT}" x2="{_LEFT + _WIDTH}" y1="{base}" y2="{base}" stroke="#888"/>'
    yield f'<text x="{_LEFT - 6}" y="{top + _TOP + 8}" text-anchor="end">{most:.0f}</text>'
    yield f'<text x="{_LEFT - 6}" y="{base}" text-anchor="end">0</text>'
    yield f'<text x="{_LEFT}" y="{top + 18}">{escape(name)}</text>'
    yield f'<text x="{_LEFT + _WIDTH}" y="{base + 12}" text-anchor="end">{end / 60:.0f} min</text>'
    for number, (key, line) in enumerate(found.items()):
        colour = _COLOURS[number]
        yield (
            f'<text x="{_LEFT + 180 + number * 80}" y="{top + 18}" fill="{colour}">'
            f"{escape(key)}</text>"
        )
        points = " ".join(
            f"{across(sample.at_s):.1f},{base - value / most * _HEIGHT:.1f}"
            for sample, value in zip(samples, line, strict=True)
            if value is not None
        )
        yield f'<polyline points="{points}" fill="none" stroke="{colour}"/>'

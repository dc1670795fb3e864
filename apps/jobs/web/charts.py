"""The bars of the report's chart, in SVG coordinates."""

from dataclasses import dataclass

from apps.jobs.domain.totals import Sums

WIDTH, HEIGHT, GAP = 700, 160, 10


@dataclass(frozen=True)
class Bar:
    """One part of a column, with colour class, title and link."""

    kind: str
    x: float
    y: float
    width: float
    height: float
    title: str
    address: str


def columns(groups: list[Sums]) -> list[Bar]:
    """Return a column per group, failed jobs at the bottom, scaled to the highest."""
    most = max((group.jobs for group in groups), default=0)
    step = WIDTH / len(groups) if groups else 0
    bars = []
    for number, group in enumerate(groups):
        foot = float(HEIGHT)
        parts = [
            ("down", "failed", group.failed, group.failed_address),
            ("planned", "interrupted", group.interrupted, group.interrupted_address),
            ("up", "completed", group.completed, group.completed_address),
        ]
        for kind, word, count, address in parts:
            if count:
                height = HEIGHT * count / most
                foot -= height
                title = f"{group.name}: {count:,} {word}"
                bars.append(Bar(kind, number * step + GAP / 2, foot, step - GAP, height, title, address))
    return bars

"""The geometry of the report's chart: plain numbers for an SVG, every mark with its title and its link."""

from dataclasses import dataclass

from apps.jobs.domain.totals import Sums

WIDTH, HEIGHT, GAP = 700, 160, 10


@dataclass(frozen=True)
class Bar:
    """One part of a column: its colour class, where it stands, what it counts and the list behind it."""

    kind: str
    x: float
    y: float
    width: float
    height: float
    title: str
    address: str


def columns(groups: list[Sums]) -> list[Bar]:
    """Return one column per group, the failed jobs at its foot, the tallest as high as the chart."""
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

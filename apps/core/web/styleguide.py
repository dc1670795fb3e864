"""`/styleguide/`: every component in every state on one page, only with DEMO=true."""

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from apps.core import charts
from apps.core.charts import Band, Bin, Cell, Part, Series, Tick
from apps.core.web.templatetags.formatting import SIGNS

VERDICTS = ("service", "code", "resource", "user", "unknown")
GROUPS = ("new", "known", "retried", "resolved", "regressed", "muted")
_HOURS = 48


# The page has nothing to protect.
@login_not_required
@require_safe
def styleguide(request: HttpRequest) -> HttpResponse:
    if not settings.DEMO:
        raise Http404
    context = {
        "signs": [(sign, states.split()[0]) for sign, states in SIGNS.items()],
        "words": ("up", "degraded", "down", "planned", "unknown", "failed", "cancelled"),
        "verdicts": VERDICTS,
        "groups": GROUPS,
        "charts": _charts(),
        "rows": [
            ("simulation", 9_585, 13_500, 44),
            ("reco", 4_901, 13_500, 86),
            ("merge", 78, 1_200, 0),
        ],
    }
    return render(request, "core/styleguide.html", context)


def _charts() -> list[tuple[str, bool, str]]:
    """Return one chart of each kind with its name, and whether it fills its card."""
    series = [Series(name, name) for name in VERDICTS]
    hours = []
    for hour in range(_HOURS):
        values = [(hour * (place + 3)) % 11 for place in range(5)]
        hours.append(Bin(f"{hour % 24:02d}:00", values, "#charts", (hour * 7 % 23) / 100))
    ticks = []
    for hour in range(0, _HOURS, 6):
        ticks.append(
            Tick(
                hour,
                "Sun 22" if hour % 24 == 0 else f"{hour % 24:02d}:00",
                hour % 24 == 0,
                hour % 12 != 0,
            )
        )
    bands = [
        Band("CVMFS", "down", 9.5, 10.2, "#charts", "down 09:30–10:10"),
        Band("Tape library", "planned", 30, 47, "#charts", "maintenance", 1),
    ]
    week = [
        (
            "Mon",
            {hour: Part("down" if hour in {3, 4} else "up", 1, f"{hour}:00") for hour in range(24)},
        )
    ] * 7
    cells = []
    for hour in range(24):
        cells.append(Cell(f"{hour}:00", None if hour == 5 else hour * 3 % 20 / 100, "#charts"))
    names = [str(hour) if hour % 3 == 0 else "" for hour in range(24)]
    expected_and_jobs = [Series("expected", "expected"), Series("jobs", "accent")]
    points = [Bin(str(day), (day * 10, day * 8 + day % 3)) for day in range(1, 15)]
    jobs = [Bin(point.label, point.values[:1]) for point in points]
    return [
        (
            "Stacked bars, bands and a rate",
            True,
            charts.bars(
                hours,
                series,
                sentence="Failed jobs by hour",
                ticks=ticks,
                bands=bands,
                rate="Failure rate",
            ),
        ),
        (
            "Bars",
            True,
            charts.bars(
                jobs,
                expected_and_jobs[1:],
                sentence="Jobs by day",
                ticks=charts.edge_ticks(jobs),
                heading="Day",
            ),
        ),
        (
            "Lines",
            True,
            charts.line(
                points,
                expected_and_jobs,
                sentence="Jobs by day",
                ticks=charts.edge_ticks(points),
                heading="Day",
            ),
        ),
        (
            "Interval",
            False,
            charts.interval(value=0.27, low=0.22, high=0.33, expected=0.04, top=0.5),
        ),
        (
            "Spread",
            False,
            charts.spread([2, 3, 4, 5, 7], value=6, sentence="80 % of past jobs used 2 to 7 GB"),
        ),
        ("Spark", False, charts.spark([3, 2, 4, 0, 5, 104, 79, 12], sentence="highest hour 104")),
        (
            "Heat map",
            False,
            charts.heat_map(
                names, [("Mon", cells), ("Tue", cells)], sentence="Failure rate", top=0.2
            ),
        ),
        ("Week", False, charts.week_strip(week, sentence="State by hour")),
    ]

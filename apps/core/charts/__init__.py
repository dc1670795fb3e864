"""Charts: SVG rendered on the server, with a text alternative and a table of the figures.

Horizontal positions are in per cent, so that a chart stretches with its card. Vertical positions
and text are in pixels. A mark has the colour of its kind (`up`, `down`, `service`, `code`, …: the
classes `f-…` of static/opsportal/css/states.css) and links to the list that it counts. These links
are not in the tab order, because the table has the same ones.
"""

from apps.core.charts.grids import heat_map, week_strip
from apps.core.charts.marks import bar_with_mark, interval, share_bar, spark, spread
from apps.core.charts.parts import Band, Bin, Cell, Part, Series, Tick
from apps.core.charts.plots import HEIGHT, axis, bars, edge_ticks, line, log_axis, spans_powers
from apps.core.charts.svg import short_number

__all__ = [
    "HEIGHT",
    "Band",
    "Bin",
    "Cell",
    "Part",
    "Series",
    "Tick",
    "axis",
    "bar_with_mark",
    "bars",
    "edge_ticks",
    "heat_map",
    "interval",
    "line",
    "log_axis",
    "share_bar",
    "short_number",
    "spans_powers",
    "spark",
    "spread",
    "week_strip",
]

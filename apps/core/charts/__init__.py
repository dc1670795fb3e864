"""Charts: SVG made on the server, with a sentence for those who do not see it and a table behind.

Across, a chart is measured in per cent, so that it stretches with its card; down, and in its type,
in pixels. A mark takes the colour of its kind (`up`, `down`, `service`, `code`, …: the classes
`f-…` of static/opsportal/css/states.css) and links to the list that it counts. These links are not
in the tab order: the table behind has the same ones.
"""

from apps.core.charts.grids import heat_map, week_strip
from apps.core.charts.marks import interval, share_bar, spark, spread
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

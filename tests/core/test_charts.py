"""Charts are drawings with a sentence, escaped text, links, and the same figures in a table."""

import re
from xml.etree import ElementTree as ET

import hypothesis
import pytest
from hypothesis import strategies as st

from apps.core import charts
from apps.core.charts import Band, Bin, Cell, Part, Series, Tick

SERIES = [Series("service", "service"), Series("code <b>", "code")]
BINS = [
    Bin("Sun 09:00", (3, 1), "/jobs/?a=1&b=2", 0.25),
    Bin("Sun 10:00", (0, 0), "", None),
    Bin("<i>", (0.5, 2)),
]


def drawn(markup):
    """Parse what a chart returned: it is well-formed."""
    return ET.fromstring(f"<all>{markup}</all>")


@pytest.mark.parametrize(
    ("most", "top", "lines"),
    [
        (0, 1, 2),
        (1, 1, 5),
        (3, 3, 4),
        (7, 8, 5),
        (99, 100, 5),
        (1234, 1500, 4),
        (0.3, 0.3, 4),
        (8_000_000, 8_000_000, 5),
    ],
)
def test_axis_starts_at_zero_and_holds_the_highest(most, top, lines):
    found, steps = charts.axis(most)
    assert (found, len(steps), steps[0]) == (pytest.approx(top), lines, 0)


def test_bars_have_a_sentence_links_bands_and_a_table():
    band = Band("samweb", "down", 0.5, 1.5, "/incidents/1/", "down 09:30–10:30")
    chart = charts.bars(
        BINS,
        SERIES,
        sentence="Failed <jobs>",
        ticks=[Tick(0, "Sun 22", True)],
        bands=[band],
        rate="Rate",
    )
    tree = drawn(chart)
    svg = tree.find(".//svg")
    assert svg.attrib["aria-label"] == "Failed <jobs>"
    assert svg.attrib["role"] == "group", "an image could hold no links"
    assert [link.attrib["href"] for link in svg.iter("a")] == ["/jobs/?a=1&b=2", "/incidents/1/"]
    rows = [["".join(cell.itertext()) for cell in row] for row in tree.findall(".//tr")]
    assert rows == [
        ["Time", "service", "code <b>", "Rate"],
        ["Sun 09:00", "3", "1", "25.0%"],
        ["Sun 10:00", "0", "0", "–"],
        ["<i>", "0.5", "2", "–"],
    ]
    # One value alone: the line has gaps where no job ended.
    [line] = [path.attrib["d"] for path in svg.iter("path") if path.attrib["class"] == "rate"]
    assert re.fullmatch(r"M0\.5,[0-9.]+", line)
    heights = [
        float(each.attrib["height"])
        for each in svg.iter("rect")
        if each.attrib["class"] == "f-service"
    ]
    assert heights == [
        pytest.approx(3 / 4 * charts.HEIGHT - 0.4, abs=0.1),
        pytest.approx(0.5 / 4 * charts.HEIGHT - 0.4, abs=0.1),
    ]


def test_logarithmic_bars_show_small_values_beside_one_large_value():
    bins = [Bin("a", [2]), Bin("b", [0]), Bin("c", [200]), Bin("d", [20_000])]
    tree = drawn(
        charts.bars(bins, [Series("minutes", "accent")], sentence="Queue times", is_log=True)
    )
    heights = [
        float(each.attrib["height"])
        for each in tree.iter("rect")
        if each.attrib["class"] == "f-accent"
    ]
    assert len(heights) == 3, "zero has no bar"
    assert heights[1] - heights[0] == pytest.approx(heights[2] - heights[1], abs=0.2), (
        "equal ratios, equal heights"
    )
    assert heights[0] > 10
    assert heights[2] < charts.HEIGHT
    numbers = [each.text for each in tree.iter("text") if each.attrib.get("x") == "-8"]
    assert numbers == ["1", "10", "100", "1,000", "10k", "100k"]
    assert [row[1].text for row in tree.iter("tr")][1:] == ["2", "0", "200", "20,000"]


@hypothesis.given(st.lists(st.floats(0, 1e12), min_size=1).filter(any))
def test_logarithmic_axis_holds_all_values_in_few_lines(values):
    lines = charts.log_axis(values)
    assert lines[-1] >= max(values) * (1 - 1e-9)
    assert lines[0] < min(value for value in values if value) or lines[0] == 0.01
    assert 2 <= len(lines) <= 7
    chart = drawn(
        charts.bars(
            [Bin("a", [value]) for value in values], [Series("s", "up")], sentence="", is_log=True
        )
    )
    heights = [
        float(each.attrib["height"])
        for each in chart.iter("rect")
        if each.attrib["class"] == "f-up"
    ]
    assert len(heights) == sum(value > 0 for value in values)
    assert all(0 < height <= charts.HEIGHT for height in heights)


@pytest.mark.parametrize(
    ("values", "expected"),
    [([], False), ([0, 0], False), ([1, 100], False), ([0, 1, 101], True), ([0, 5000], False)],
)
def test_values_span_more_than_two_powers_of_ten(values, expected):
    assert charts.spans_powers(values) is expected


def test_line_interval_spark_and_strip_are_images_of_numbers():
    assert drawn(charts.line(BINS, SERIES, sentence="Two lines")).findall(".//path")
    whisker = drawn(
        charts.interval(value=0.271, low=0.216, high=0.334, expected=0.041, top=0.5)
    ).find("svg")
    assert whisker.attrib["aria-label"] == "27.1%, between 21.6% and 33.4%, expected 4.1%"
    assert drawn(charts.spark([0, 3, 9], sentence="highest 9")).find("svg").attrib["role"] == "img"
    days = [("Mon", {0: Part("up", 1, "00:00 up"), 23: Part("down", 1, "23:00 down", "/x/")})]
    assert len(drawn(charts.week_strip(days, sentence="a week")).findall(".//rect")) == 2


def test_parts_of_a_whole_fill_it_no_further():
    parts = [
        Part("done", 60, "60 done", "/d/"),
        Part("failed", 0, "0 failed"),
        Part("running", 70, "70 running"),
    ]
    bar = charts.share_bar(parts, sentence="x", whole=100, target=Part("due", 30, "30 due"))
    assert [(rect.attrib["x"], rect.attrib["width"]) for rect in drawn(bar).findall(".//rect")] == [
        ("0%", "60%"),
        ("60%", "40%"),
        ("30%", "2"),
    ]


def test_cells_of_a_heat_map_are_classes_and_unknown_is_not_zero():
    rows = [("Mon", [Cell("0:00: 2 %", 0.02, "/j/"), Cell("too few jobs", None), Cell("all", 1.0)])]
    cells = drawn(charts.heat_map(["0", "1", "2"], rows, sentence="rates", top=0.2)).findall(
        ".//tbody/tr/td"
    )
    assert [cell.attrib["class"] for cell in cells] == ["p10", "none", "p100"]


def test_nothing_to_draw_is_no_error():
    assert drawn(charts.bars([], SERIES, sentence="nothing")).find(".//svg") is not None
    assert drawn(charts.line([], SERIES, sentence="nothing")).find(".//svg") is not None


def test_a_spread_marks_a_value_below_what_was_used():
    wide = drawn(charts.spread([10, 20, 30, 40, 100], value=50, sentence="used 10 to 100")).find(
        "svg"
    )
    assert wide.attrib["aria-label"] == "used 10 to 100"
    places = {
        each.attrib["class"]: (each.attrib["x"], each.attrib["width"]) for each in wide.iter("rect")
    }
    assert float(places["mine short"][0].rstrip("%")) == pytest.approx(50 / 115 * 100, abs=0.01)
    assert [float(text.rstrip("%")) for text in places["half"]] == pytest.approx(
        [17.4, 17.4], abs=0.1
    )
    enough = drawn(charts.spread([10] * 5, value=20, sentence="x"))
    assert "mine" in {each.attrib["class"] for each in enough.iter("rect")}
    assert len(drawn(charts.spread([0] * 5, value=None, sentence="x")).findall(".//rect")) == 4

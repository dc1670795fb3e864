"""Lay out provenance as a graph: a column for each step, a box for each dataset. Units: pixels."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from apps.core.domain.hidden_characters import mark_hidden
from apps.datasets.domain.parts import steps_of_parts
from apps.datasets.domain.provenance import Provenance, ProvenanceSide
from apps.datasets.domain.steps import PartStep, Step, is_unnamed

BOX_WIDTH = 208
BOX_HEIGHT = 52
_COLUMN_WIDTH = BOX_WIDTH + 36
_ROW_HEIGHT = BOX_HEIGHT + 12
#: Space around the boxes, for their outline.
_MARGIN = 2
#: Boxes of a column. The last one stands for all others.
MOST_IN_COLUMN = 8
_NAME_CHARACTERS = 26
_LINE_CHARACTERS = 30


@dataclass(frozen=True)
class Box:
    """A dataset at a place. `name` is empty if it has no page; `x` and `y` are its upper left."""

    x: int
    y: int
    label: str
    line: str
    title: str
    name: str = ""
    is_current: bool = False

    @property
    def text_x(self) -> int:
        return self.x + 10

    @property
    def label_y(self) -> int:
        return self.y + 22

    @property
    def line_y(self) -> int:
        return self.y + 40


@dataclass(frozen=True)
class Graph:
    """Boxes, and the paths between them. It is worth drawing if there are at least two boxes."""

    width: int
    height: int
    boxes: list[Box]
    paths: list[str]

    @property
    def is_worth_drawing(self) -> bool:
        return len(self.boxes) > 1


def draw_graph(provenance: Provenance) -> Graph:
    """Draw what a dataset was made from to its left, and what was made from it to its right."""
    columns: dict[int, list[str]] = defaultdict(list)
    for key, distance in provenance.back.distances.items():
        columns[-distance].append(key)
    for key, distance in provenance.forward.distances.items():
        if distance:
            columns[distance].append(key)
    makers = _makers_by_key(provenance)

    first = min(columns)
    most_rows = max(min(len(keys), MOST_IN_COLUMN) for keys in columns.values())
    height = most_rows * _ROW_HEIGHT - (_ROW_HEIGHT - BOX_HEIGHT) + 2 * _MARGIN
    boxes = []
    places: dict[tuple[int, str], Box] = {}
    for column, keys in sorted(columns.items()):
        x = (column - first) * _COLUMN_WIDTH + _MARGIN
        rows = min(len(keys), MOST_IN_COLUMN)
        y = (height - rows * _ROW_HEIGHT + (_ROW_HEIGHT - BOX_HEIGHT)) // 2
        shown = keys if len(keys) <= MOST_IN_COLUMN else keys[: MOST_IN_COLUMN - 1]
        for key in shown:
            box = _box(x, y, key, makers[column].get(key, []), is_current=column == 0)
            boxes.append(box)
            places[_sign(column), key] = box
            y += _ROW_HEIGHT
        hidden = keys[len(shown) :]
        if hidden:
            label = f"{len(hidden)} more"
            box = Box(x, y, label, "in the list below", label)
            boxes.append(box)
            for key in hidden:
                places[_sign(column), key] = box
    paths = _paths(provenance.back, places, -1) + _paths(provenance.forward, places, 1)
    # Several steps may lead to the box that stands for many.
    unique_paths = list(dict.fromkeys(paths))
    width = len(columns) * _COLUMN_WIDTH - (_COLUMN_WIDTH - BOX_WIDTH) + 2 * _MARGIN
    return Graph(width, height, boxes, unique_paths)


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)


def _makers_by_key(
    provenance: Provenance,
) -> Mapping[int, Mapping[str, list[Step | PartStep]]]:
    """Return the steps that lead to each dataset, by column and key."""
    makers: dict[int, dict[str, list[Step | PartStep]]] = defaultdict(lambda: defaultdict(list))
    claimed = [step for step in provenance.makers if step.is_claimed]
    own = makers[0][provenance.name]
    own.extend(claimed or provenance.makers)
    own.extend(steps_of_parts(provenance.parts.part_of))
    for entry in provenance.made_from:
        if entry.step is not None:
            makers[-entry.distance][entry.key].append(entry.step)
        elif entry.part is not None:
            makers[-entry.distance][entry.key].append(PartStep(entry.part))
    distances = provenance.forward.distances
    for step in provenance.forward.steps:
        makers[distances[step.output]][step.output].append(step)
    return makers


def _box(x: int, y: int, key: str, makers: Iterable[Step | PartStep], *, is_current: bool) -> Box:
    title_lines = ["output without a name" if is_unnamed(key) else mark_hidden(key)]
    stages = []
    parts = []
    for step in makers:
        text = _described(step)
        title_lines.append(text)
        if isinstance(step, PartStep):
            parts.append(text)
        else:
            stages.append(text)
    if len(stages) > 1:
        line = f"{len(stages)} stages"
    else:
        line = next(iter(stages + parts), "no request")
    label = "no name"
    name = ""
    if not is_unnamed(key):
        label = _shortened(mark_hidden(key), _NAME_CHARACTERS)
        name = key
    return Box(
        x=x,
        y=y,
        label=label,
        line=_shortened(line, _LINE_CHARACTERS),
        title="\n".join(title_lines),
        name=name,
        is_current=is_current,
    )


def _described(step: Step | PartStep) -> str:
    if isinstance(step, PartStep):
        if step.part.is_held:
            return f"part: missing in {step.part.split_from.key}"
        return f"part: share of {step.part.split_from.key}"
    draft = "draft " if step.is_draft else ""
    return mark_hidden(f"{draft}{step.stage.request.key} · {step.number} {step.stage.name}")


def _shortened(text: str, most: int) -> str:
    """Cut the middle out of a long text: names of datasets differ at both ends."""
    if len(text) <= most:
        return text
    start = (most - 1) // 2
    end = most - 1 - start
    return f"{text[:start]}…{text[-end:]}"


def _paths(side: ProvenanceSide, places: Mapping[tuple[int, str], Box], sign: int) -> list[str]:
    """Return a curve for each step, from the box of its input to the box of its output."""
    paths = []
    for step in side.steps:
        start = places[sign if side.distances[step.input] else 0, step.input]
        end = places[sign if side.distances[step.output] else 0, step.output]
        if start == end:
            continue
        x1 = start.x + BOX_WIDTH
        y1 = start.y + BOX_HEIGHT // 2
        y2 = end.y + BOX_HEIGHT // 2
        bend = max(18, abs(end.x - x1) // 2)
        paths.append(f"M{x1} {y1}C{x1 + bend} {y1} {end.x - bend} {y2} {end.x} {y2}")
    return paths

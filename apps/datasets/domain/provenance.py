"""Provenance of a dataset: what it was made from, step by step, and what was made from it.

Only requests that the user may see count: a dataset of other requests is a name without a request.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from apps.accounts.models import Principal
from apps.datasets.domain.answers import StoredAnswers, answers_for
from apps.datasets.domain.parts import MOST_PARTS, Parts, steps_of_parts
from apps.datasets.domain.steps import (
    PartStep,
    ProvenanceSteps,
    Step,
    has_placeholder,
    is_possible_name,
    is_unnamed,
)
from apps.datasets.domain.uses import count_uses
from apps.production.domain.content.scan import read_scan
from apps.production.models import DatasetPart

#: Steps that are followed back and forward.
MOST_STEPS = 10
#: Datasets that are shown on each side.
MOST_DATASETS = 60


@dataclass(frozen=True)
class ProvenanceEntry:
    """A dataset of the provenance, and one of the steps that lead to it.

    `distance` is the number of steps between it and the dataset of the page. `step` is the stage
    that writes it; None if no visible request does. If the dataset is one of some files of another
    one, `part` says of which, and for which request.
    """

    key: str
    distance: int
    step: Step | None
    part: DatasetPart | None = None

    @property
    def name(self) -> str:
        """The name of the dataset; empty for the output of a stage that names none."""
        return "" if is_unnamed(self.key) else self.key


@dataclass
class ProvenanceSide:
    """All that a dataset was made from, or all that was made from it.

    `distances` has the datasets in the order in which they were reached, with their number of
    steps; the dataset itself is the first, with 0. `steps` are the steps between them.
    """

    distances: dict[str, int]
    steps: list[Step | PartStep] = field(default_factory=list)
    is_cut: bool = False

    @property
    def has_cycle(self) -> bool:
        """Whether a dataset is made from itself: a mistake in the requests."""
        written_from: dict[str, set[str]] = {}
        for key in self.distances:
            written_from[key] = set()
        for step in self.steps:
            written_from[step.output].add(step.input)
        while written_from:
            finished = {key for key, inputs in written_from.items() if not inputs}
            if not finished:
                return True
            for key in finished:
                del written_from[key]
            for inputs in written_from.values():
                inputs.difference_update(finished)
        return False


@dataclass(frozen=True)
class PointDataset:
    """A point of a scan, the dataset that belongs to it, and how many stages read that."""

    label: str
    name: str
    uses: int


@dataclass(frozen=True)
class Provenance:
    """A dataset with all that is known about it.

    `makers` are the steps that write it: several requests may. Those whose jobs reported files
    come first, drafts last. `uses` is the number of stages that read it, of which `readers` may be
    only the newest. `answers` are the catalogues' answers, by name of a dataset. `points` are the
    datasets of a name with placeholders. `parts` are what it is a part of, and what is a part of
    it.
    """

    name: str
    makers: list[Step]
    readers: list[Step]
    uses: int
    back: ProvenanceSide
    forward: ProvenanceSide
    made_from: list[ProvenanceEntry]
    used_by: list[ProvenanceEntry]
    points: list[PointDataset]
    parts: Parts
    answers: Mapping[str, StoredAnswers]
    is_cut: bool

    @property
    def own_answers(self) -> StoredAnswers:
        """What the catalogues answered about it."""
        return self.answers[self.name]

    @property
    def has_cycle(self) -> bool:
        return self.back.has_cycle or self.forward.has_cycle


def provenance_of(name: str, user: Principal) -> Provenance | None:
    """Return the provenance of a dataset; None if no request that the user may see names it.

    The number of queries depends on the number of steps, of which at most `MOST_STEPS` are
    followed.
    """
    if not is_possible_name(name):
        return None
    steps = ProvenanceSteps(user)
    steps.load(written={name}, read={name})
    makers = sorted(
        steps.steps_that_write(name), key=lambda step: (step.is_draft, _reported_nothing(step))
    )
    readers = steps.steps_that_read(name)
    parts = Parts(steps.parts_named(name)[:MOST_PARTS], steps.parts_of(name)[:MOST_PARTS])
    if not makers and not readers and not parts.part_of and not parts.parts:
        return None

    back, forward = _both_sides(name, steps)
    keys = {*back.distances, *forward.distances}
    names = [key for key in keys if not is_unnamed(key)]
    return Provenance(
        name=name,
        makers=makers,
        readers=readers,
        uses=count_uses([name], user).get(name, 0),
        back=back,
        forward=forward,
        made_from=_entries_back(back, steps),
        used_by=_entries_forward(forward),
        points=_points_of(name, makers or readers, user),
        parts=parts,
        answers=answers_for(names, user),
        is_cut=steps.is_cut or back.is_cut or forward.is_cut,
    )


def _reported_nothing(step: Step) -> bool:
    """Whether no job of the stage reported a file that it wrote."""
    for totals, files in (("counts", "files_out"), ("output_totals", "counting_files")):
        if getattr(getattr(step.stage, totals, None), files, 0):
            return False
    return True


def _both_sides(name: str, steps: ProvenanceSteps) -> tuple[ProvenanceSide, ProvenanceSide]:
    """Follow the steps back and forward, and read the requests that they lead to."""
    while True:
        back = _follow(name, lambda key: _before(key, steps), lambda step: step.input)
        forward = _follow(name, lambda key: _after(key, steps), lambda step: step.output)
        written = {*back.distances} - steps.loaded_writers
        read = {*forward.distances} - steps.loaded_readers
        if not written and not read:
            return back, forward
        steps.load(written=written, read=read)


def _before(key: str, steps: ProvenanceSteps) -> list[Step | PartStep]:
    """Return the steps that lead to a dataset, the parts last."""
    return [*steps.claimed_or_all_writers(key), *steps_of_parts(steps.parts_named(key))]


def _after(key: str, steps: ProvenanceSteps) -> list[Step | PartStep]:
    """Return the steps from a dataset, the parts last."""
    return [*steps.steps_that_read(key), *steps_of_parts(steps.parts_of(key))]


def _follow(
    name: str,
    steps_at: Callable[[str], Sequence[Step | PartStep]],
    next_key: Callable[[Step | PartStep], str],
) -> ProvenanceSide:
    """Follow steps from a dataset, nearest first. Each dataset is visited once."""
    side = ProvenanceSide({name: 0})
    current = [name]
    for distance in range(1, MOST_STEPS + 2):
        reached = []
        for key in current:
            for step in steps_at(key):
                other = next_key(step)
                if not other:
                    continue
                if other not in side.distances:
                    if distance > MOST_STEPS or len(side.distances) > MOST_DATASETS:
                        side.is_cut = True
                        continue
                    side.distances[other] = distance
                    reached.append(other)
                side.steps.append(step)
        current = reached
    return side


def _entries_back(side: ProvenanceSide, steps: ProvenanceSteps) -> list[ProvenanceEntry]:
    """List the datasets before this one, nearest first, each with the steps that write it."""
    entries = []
    for key, distance in side.distances.items():
        if distance == 0:
            continue
        makers = _before(key, steps)
        for step in makers:
            entries.append(_entry(key, distance, step))
        if not makers:
            entries.append(ProvenanceEntry(key, distance, None))
    return entries


def _entries_forward(side: ProvenanceSide) -> list[ProvenanceEntry]:
    """List the steps after this dataset, nearest first, each with what it writes."""
    entries = []
    for step in side.steps:
        entries.append(_entry(step.output, side.distances[step.input] + 1, step))
    return sorted(entries, key=lambda entry: entry.distance)


def _entry(key: str, distance: int, step: Step | PartStep) -> ProvenanceEntry:
    if isinstance(step, PartStep):
        return ProvenanceEntry(key, distance, None, step.part)
    return ProvenanceEntry(key, distance, step)


def _points_of(name: str, steps: list[Step], user: Principal) -> list[PointDataset]:
    """List the datasets of a name with placeholders, at each point of the newest scan."""
    if not has_placeholder(name):
        return []
    points = []
    for step in steps:
        if step.stage.request.scan:
            points = list(read_scan(step.stage.request.scan).points)
            break
    labels: dict[str, str] = {}
    for point in points:
        labels.setdefault(point.text(name), point.label)
    uses = count_uses(labels, user)
    listed = []
    for point_name, label in labels.items():
        listed.append(PointDataset(label, point_name, uses.get(point_name, 0)))
    return listed

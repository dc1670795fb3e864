"""Stages as steps from one dataset to the next.

A stage reads its input dataset, or the output of the previous stage of its request, and writes its
output dataset. Each point of a parameter scan reads and writes datasets of its own: a step names
the dataset of one point where it is clear which one, and `gen.{energy}` for all of them.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from django.db.models import F, Func, Q, QuerySet, TextField, Value
from django.db.models.functions import Cast

from apps.accounts.models import Principal
from apps.accounts.permissions import scope_of
from apps.production.domain.content.scan import read_scan
from apps.production.enums import UNCLAIMED, RequestState
from apps.production.models import DatasetPart, Stage

#: Requests that are read at once, the newest of those that write or read some datasets.
MOST_REQUESTS = 100
#: The longest name that a catalogue and the portal can have.
LONGEST_NAME = 500
#: The start of the key of an output without a name. No name of a dataset has this character.
_UNNAMED = "\0"
_PLACEHOLDER = re.compile(r"\{[^{}]*\}")


@dataclass(frozen=True)
class Step:
    """A stage that reads a dataset and writes another one.

    `input` is empty if it reads none. Outputs without a name have keys; see `is_unnamed`.
    """

    stage: Stage
    input: str
    output: str

    @property
    def is_claimed(self) -> bool:
        """Whether its request is in a state in which it writes datasets."""
        return self.stage.request.state not in UNCLAIMED

    @property
    def is_draft(self) -> bool:
        """Whether its request has not been submitted yet."""
        return self.stage.request.state == RequestState.DRAFT

    @property
    def number(self) -> int:
        """The number of the stage in its request, from 1."""
        return self.stage.position + 1

    @property
    def input_name(self) -> str:
        """The name of the dataset that it reads; empty if it has none, or reads none."""
        return "" if is_unnamed(self.input) else self.input


@dataclass(frozen=True)
class PartStep:
    """A dataset of some files of another one: a step from the whole one to the part."""

    part: DatasetPart

    @property
    def input(self) -> str:
        return self.part.whole

    @property
    def output(self) -> str:
        return self.part.name


def is_possible_name(name: str) -> bool:
    """Whether a dataset can have this name."""
    return 0 < len(name) <= LONGEST_NAME and "\0" not in name


def is_unnamed(key: str) -> bool:
    """Whether this is the key of the output of a stage that names none."""
    return key.startswith(_UNNAMED)


def has_placeholder(name: str) -> bool:
    """Whether a name stands for several datasets, one for each point of a scan."""
    return "{" in name


def visible_stages(user: Principal) -> QuerySet[Stage]:
    """Return the stages of the requests that the user may see."""
    scope = scope_of(user)
    stages = Stage.objects.all()
    if scope.sees_all:
        return stages
    return stages.filter(request__experiment__in=scope.experiment_keys)


def visible_parts(user: Principal) -> QuerySet[DatasetPart]:
    """Return the parts of datasets of requests that the user may see, newest first.

    Each belongs to a request made from a split or recovered one; both are read with it. The files
    are not.
    """
    parts = DatasetPart.objects.select_related("request", "split_from").defer("files")
    scope = scope_of(user)
    if not scope.sees_all:
        parts = parts.filter(
            request__experiment__in=scope.experiment_keys,
            split_from__experiment__in=scope.experiment_keys,
        )
    return parts.order_by("-pk")


def stages_of_scans(
    stages: QuerySet[Stage], columns: Iterable[str], names: Iterable[str]
) -> QuerySet[Stage]:
    """Return the stages of scans that may have one of these names in a column at some point.

    `names_that_fit` decides. The database compares only what stands before the first parameter: it
    is one of the beginnings of a name.
    """
    beginnings = set()
    for name in names:
        for end in range(len(name) + 1):
            beginnings.add(name[:end])
    may_fit = Q()
    for column in columns:
        before_first = Func(F(column), Value("{"), Value(1), function="split_part")
        alias = f"beginning_of_{column}"
        stages = stages.alias(**{alias: Cast(before_first, TextField())})
        may_fit |= Q(**{f"{column}__contains": "{", f"{alias}__in": beginnings})
    return stages.exclude(request__scan="").filter(may_fit)


def names_that_fit(names: Iterable[str], template: str, scan: str) -> list[str]:
    """Return the names that a text with placeholders has at the points of a scan."""
    possible = [name for name in names if _can_become(template, name)]
    if not possible:
        return []
    texts = set()
    for point in read_scan(scan).points:
        texts.add(point.text(template))
    return [name for name in possible if name in texts]


def _can_become(template: str, name: str) -> bool:
    """Whether a name has the fixed parts of a text with placeholders, in their order.

    In linear time: users write the texts, so this is no regular expression.
    """
    first, *others = _PLACEHOLDER.split(template)
    if not others:
        return name == template
    last = others.pop()
    end = len(name) - len(last)
    if not name.startswith(first) or not name.endswith(last):
        return False
    position = len(first)
    for part in others:
        place = name.find(part, position, end)
        if place < 0:
            return False
        position = place + len(part)
    return position <= end


class ProvenanceSteps:
    """The steps of the requests that were loaded, by what they write and by what they read."""

    def __init__(self, user: Principal) -> None:
        self._visible = visible_stages(user)
        self._visible_parts = visible_parts(user)
        self._parts: dict[int, DatasetPart] = {}
        self._request_pks: set[int] = set()
        self._inputs: dict[int, str] = {}
        self._stages_writing: dict[str, list[Stage]] = defaultdict(list)
        self._stages_reading: dict[str, list[Stage]] = defaultdict(list)
        self._scans_writing: list[Stage] = []
        self._scans_reading: list[Stage] = []
        self.loaded_writers: set[str] = set()
        self.loaded_readers: set[str] = set()
        #: Some requests were not read, because there are too many.
        self.is_cut = False

    def load(self, *, written: Collection[str], read: Collection[str]) -> None:
        """Read the requests that write or read these datasets, in at most seven queries.

        Parts that have these names, or are parts of these datasets, are read with them. The next
        stage of a request may read what a stage writes, so `read` names are looked up as outputs
        too.
        """
        outputs = _names_in({*written, *read} - self.loaded_writers)
        inputs = _names_in(set(read) - self.loaded_readers)
        self.loaded_writers |= {*written, *read}
        self.loaded_readers |= set(read)

        self._load_parts("name", outputs)
        self._load_parts("whole", inputs)
        request_pks: set[int] = set()
        for column, names in (("output_dataset", outputs), ("input_dataset", inputs)):
            if names:
                request_pks |= self._requests_with(column, names)
        request_pks -= self._request_pks
        self._request_pks |= request_pks

        stages = Stage.objects.filter(request__in=request_pks).order_by("request", "position")
        of_request = ("request__experiment", "request__created_by")
        related = (*of_request, "location", "counts", "output_totals")
        previous: Stage | None = None
        for stage in stages.select_related(*related) if request_pks else ():
            if previous is not None and previous.request_id != stage.request_id:
                previous = None
            self._add(stage, previous)
            previous = stage

    def _load_parts(self, column: str, names: list[str]) -> None:
        """Read the newest parts with one of these names in a column."""
        if not names:
            return
        rows = self._visible_parts.filter(**{f"{column}__in": names})
        parts = list(rows[: MOST_REQUESTS + 1])
        if len(parts) > MOST_REQUESTS:
            self.is_cut = True
        for part in parts[:MOST_REQUESTS]:
            self._parts[part.pk] = part

    def _requests_with(self, column: str, names: list[str]) -> set[int]:
        """Return the keys of the newest requests with one of these names in a stage's column."""
        # The index of outputs has no empty ones, so the query must say that it looks for none.
        exact = self._visible.filter(**{f"{column}__in": names}).exclude(**{column: ""})
        exact = exact.order_by("-request")
        request_pks = exact.values_list("request", flat=True).distinct()
        exact_pks = list(request_pks[: MOST_REQUESTS + 1])
        scan_pks: list[int] = []
        concrete = concrete_names(names)
        if concrete:
            matching = stages_of_scans(self._visible, [column], concrete).order_by("-request")
            columns = ("request", column, "request__scan")
            for request_pk, template, scan in matching.values_list(*columns):
                if request_pk not in scan_pks and names_that_fit(concrete, template, scan):
                    scan_pks.append(request_pk)
                if len(scan_pks) > MOST_REQUESTS:
                    break
        if max(len(exact_pks), len(scan_pks)) > MOST_REQUESTS:
            self.is_cut = True
        return {*exact_pks[:MOST_REQUESTS], *scan_pks[:MOST_REQUESTS]}

    def _add(self, stage: Stage, previous: Stage | None) -> None:
        key = stage.input_dataset
        if not key and previous is not None:
            key = _output_key(previous)
        self._inputs[stage.pk] = key
        self._stages_writing[_output_key(stage)].append(stage)
        if key:
            self._stages_reading[key].append(stage)
        if stage.request.scan and has_placeholder(stage.output_dataset):
            self._scans_writing.append(stage)
        if stage.request.scan and has_placeholder(key):
            self._scans_reading.append(stage)

    def steps_that_write(self, key: str) -> list[Step]:
        """Return the loaded steps that write a dataset, steps of the newest requests first.

        Steps of requests that claim no dataset come last.
        """
        steps = []
        for stage in self._stages_writing.get(key, ()):
            steps.append(Step(stage, self._inputs[stage.pk], key))
        if not has_placeholder(key):
            for stage in self._scans_writing:
                inputs = set()
                for input_key, output_key in self._at_points(stage, output=key):
                    if output_key == key:
                        inputs.add(input_key)
                if inputs:
                    all_inputs = self._inputs[stage.pk]
                    steps.append(Step(stage, _sole(inputs, all_inputs), key))
        return sorted(steps, key=_claimed_and_newest)

    def steps_that_read(self, key: str) -> list[Step]:
        """Return the loaded steps that read a dataset, in the order of `steps_that_write`."""
        steps = []
        for stage in self._stages_reading.get(key, ()):
            steps.append(Step(stage, key, _output_key(stage)))
        if not has_placeholder(key):
            for stage in self._scans_reading:
                outputs = set()
                for input_key, output_key in self._at_points(stage, input_=key):
                    if input_key == key:
                        outputs.add(output_key)
                if outputs:
                    steps.append(Step(stage, key, _sole(outputs, _output_key(stage))))
        return sorted(steps, key=_claimed_and_newest)

    def parts_named(self, key: str) -> list[DatasetPart]:
        """Return the loaded parts that have this name, newest first."""
        return [part for part in self._newest_parts() if part.name == key]

    def parts_of(self, key: str) -> list[DatasetPart]:
        """Return the loaded parts of a whole dataset, newest first."""
        return [part for part in self._newest_parts() if part.whole == key]

    def _newest_parts(self) -> list[DatasetPart]:
        return sorted(self._parts.values(), key=lambda part: -part.pk)

    def claimed_or_all_writers(self, key: str) -> list[Step]:
        """Return the steps that write a dataset and claim it; if none claims it, all of them."""
        steps = self.steps_that_write(key)
        claimed = [step for step in steps if step.is_claimed]
        return claimed or steps

    def _at_points(
        self, stage: Stage, *, output: str = "", input_: str = ""
    ) -> Iterator[tuple[str, str]]:
        """Yield what a stage of a scan reads and writes at each point.

        Nothing is yielded if its texts cannot become this input or output.
        """
        input_template = self._inputs[stage.pk]
        output_template = _output_key(stage)
        if output and not _can_become(output_template, output):
            return
        if input_ and not _can_become(input_template, input_):
            return
        for point in read_scan(stage.request.scan).points:
            yield point.text(input_template), point.text(output_template)


def _output_key(stage: Stage) -> str:
    return stage.output_dataset or f"{_UNNAMED}{stage.request_id} {stage.position}"


def _sole(names: set[str], all_names: str) -> str:
    """Return the only name, or the name with placeholders that stands for all of them."""
    return next(iter(names)) if len(names) == 1 else all_names


def _claimed_and_newest(step: Step) -> tuple[bool, int, int]:
    """Sort steps of requests that claim datasets first, then by newest request and stage."""
    return not step.is_claimed, -step.stage.request_id, step.stage.position


def _names_in(keys: Iterable[str]) -> list[str]:
    """Return the keys that are names, in order."""
    return sorted(key for key in keys if not is_unnamed(key))


def concrete_names(names: Iterable[str]) -> list[str]:
    """Return the names without placeholders."""
    return [name for name in names if not has_placeholder(name)]

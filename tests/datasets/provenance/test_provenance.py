"""Provenance: chains back and forward, scans, cycles, and what another experiment learns of it."""

from collections.abc import Iterable
from itertools import pairwise

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.datasets.domain import provenance as domain
from apps.datasets.domain import steps
from apps.datasets.domain.provenance import ProvenanceEntry, provenance_of
from apps.datasets.domain.uses import count_uses
from apps.datasets.models import Catalogue, KnownDataset
from apps.production.enums import UNCLAIMED, RequestState
from apps.production.models import Request, StageCounts
from tests.factories import people

S = RequestState


def described(entries: Iterable[ProvenanceEntry]) -> list[tuple[int, str, str]]:
    """Return distance, name, and key and number of the stage of each entry."""
    lines = []
    for entry in entries:
        stage = f"{entry.step.stage.request.key} {entry.step.number}" if entry.step else ""
        lines.append((entry.distance, entry.name, stage))
    return lines


def test_chain_is_followed_across_stages_and_requests(produce, liaison):
    first = produce(("raw", "calib"), ("", "reco"), ("", "merged"))
    second = produce(("reco", "tuple"), ("", "plots"))
    dataset = provenance_of("reco", liaison)
    (maker,) = dataset.makers
    assert (maker.stage.request, maker.number, maker.input) == (first, 2, "calib")
    assert described(dataset.made_from) == [(1, "calib", f"{first} 1"), (2, "raw", "")]
    assert described(dataset.used_by) == [
        (1, "tuple", f"{second} 1"),
        (1, "merged", f"{first} 3"),
        (2, "plots", f"{second} 2"),
    ]
    assert dataset.uses == 2
    assert not dataset.is_cut
    assert not dataset.has_cycle


def test_raw_data_is_an_input_only(produce, liaison):
    request = produce(("raw", "calib"))
    dataset = provenance_of("raw", liaison)
    assert dataset.makers == []
    assert dataset.made_from == []
    assert described(dataset.used_by) == [(1, "calib", f"{request} 1")]


def test_generation_reads_nothing(produce, liaison):
    produce(("", "gen"))
    dataset = provenance_of("gen", liaison)
    assert dataset.makers[0].input == ""
    assert dataset.made_from == []
    assert dataset.uses == 0


def test_name_that_no_request_has(produce, liaison):
    produce(("raw", "calib"))
    for name in ("nothing", "", "ra", "calib\0", "x" * 501):
        assert provenance_of(name, liaison) is None


def test_output_without_a_name_is_a_step_of_its_own(produce, liaison):
    request = produce(("raw", ""), ("", "reco"))
    dataset = provenance_of("reco", liaison)
    assert described(dataset.made_from) == [(1, "", f"{request} 1"), (2, "raw", "")]
    forward = provenance_of("raw", liaison)
    assert described(forward.used_by) == [(1, "", f"{request} 1"), (2, "reco", f"{request} 2")]


def test_several_requests_write_one_dataset(produce, liaison):
    old = produce(("raw1", "reco"))
    new = produce(("raw2", "reco"))
    draft = produce(("raw3", "reco"), state=S.DRAFT)
    dataset = provenance_of("reco", liaison)
    assert [step.stage.request for step in dataset.makers] == [new, old, draft]
    # A draft claims no dataset, so its input is not where this one comes from.
    assert described(dataset.made_from) == [(1, "raw2", ""), (1, "raw1", "")]
    StageCounts.objects.create(stage=old.stages.get(), files_out=57)
    makers = provenance_of("reco", liaison).makers
    assert [step.stage.request for step in makers] == [old, new, draft]


@pytest.mark.parametrize("state", sorted(UNCLAIMED))
def test_request_without_a_claim_counts_where_no_other_writes_the_dataset(produce, liaison, state):
    produce(("raw3", "reco"), state=state)
    assert described(provenance_of("reco", liaison).made_from) == [(1, "raw3", "")]


def test_input_of_the_next_stage_may_come_from_a_sibling(produce, liaison):
    produce(("raw", "reco"))
    sibling = produce(("raw", "reco"), ("", "tuple"))
    produce(("calib", "raw"))
    dataset = provenance_of("calib", liaison)
    assert (3, "tuple", f"{sibling} 2") in described(dataset.used_by)


def test_dataset_of_one_point_of_a_scan(produce, liaison):
    request = produce(
        ("raw.{energy}", "gen.{energy}"), ("", "sim.{energy}"), scan="energy = 1, 2, 5"
    )
    dataset = provenance_of("gen.5", liaison)
    assert dataset.makers[0].input == "raw.5"
    assert described(dataset.made_from) == [(1, "raw.5", "")]
    assert described(dataset.used_by) == [(1, "sim.5", f"{request} 2")]
    assert dataset.uses == 1
    assert provenance_of("gen.3", liaison) is None
    assert provenance_of("raw.2", liaison).used_by[0].name == "gen.2"


def test_name_with_placeholders_lists_its_points(produce, liaison):
    produce(("", "gen.{energy}"), ("", "sim.{energy}"), scan="energy = 1, 2")
    produce(("gen.2", "tuple"))
    dataset = provenance_of("gen.{energy}", liaison)
    points = [(point.label, point.name, point.uses) for point in dataset.points]
    assert points == [("energy = 1", "gen.1", 1), ("energy = 2", "gen.2", 2)]
    assert dataset.used_by[0].name == "sim.{energy}"


def test_stage_that_merges_all_points(produce, liaison):
    produce(("", "gen.{energy}"), ("", "merged"), scan="energy = 1, 2")
    merged = provenance_of("merged", liaison)
    assert [step.input for step in merged.makers] == ["gen.{energy}"]
    assert described(merged.made_from)[0][:2] == (1, "gen.{energy}")
    assert provenance_of("gen.1", liaison).used_by[0].name == "merged"


def test_points_of_one_input_stand_for_each_other(produce, liaison):
    produce(("raw", "gen.{energy}"), scan="energy = 1, 2")
    assert [entry.name for entry in provenance_of("raw", liaison).used_by] == ["gen.{energy}"]
    assert provenance_of("gen.1", liaison).makers[0].input == "raw"


def test_other_request_reads_a_point_of_a_scan(produce, liaison):
    scan = produce(("", "gen.{energy}"), scan="energy = 1, 2")
    produce(("gen.2", "tuple"))
    assert described(provenance_of("tuple", liaison).made_from) == [(1, "gen.2", f"{scan} 1")]


def test_characters_of_patterns_are_only_characters(produce, liaison):
    produce(("", "g_n%.*{energy}\\"), scan="energy = 1, 2")
    assert provenance_of("g_n%.*1\\", liaison).makers
    assert provenance_of("gen..1\\", liaison) is None


@pytest.mark.parametrize(
    ("template", "names"),
    [
        ("{e}", ["1", "10"]),
        ("{e}{e}", ["11", "1010"]),
        ("a.{e}.{f}.a", ["a.1.x.a", "a.10.y.a"]),
        ("a{e}a", ["a1a", "a10a"]),
        ("1{e}1{f}", ["111x", "1101y"]),
        ("{e}" * 60 + "{f}", ["1" * 60 + "x", "10" * 60 + "y"]),
        ("{unknown}{e}", ["{unknown}1"]),
    ],
)
def test_names_of_points(template, names):
    scan = "e = 1, 10\nf = x, y"
    others = ["", "a", "1", "111", "a.1.x", "a..x.a", "1" * 61, template.replace("{e}", "2")]
    others = [name for name in others if name not in names]
    assert steps.names_that_fit([*others, *names], template, scan) == names


def test_scan_with_faults_has_only_its_own_text(produce, liaison):
    produce(("", "gen.{energy}"), scan="energy = 1, 2")
    Request.objects.update(scan="energy 1, 2")
    assert provenance_of("gen.{energy}", liaison).points == []
    assert provenance_of("gen.1", liaison) is None


@pytest.mark.parametrize(
    "pairs", [[("a", "a")], [("b", "a"), ("a", "b")], [("c", "a"), ("a", "b"), ("b", "c")]]
)
def test_cycles_end_and_are_reported(produce, liaison, pairs):
    for pair in pairs:
        produce(pair)
    dataset = provenance_of("a", liaison)
    assert dataset.has_cycle
    assert len(dataset.back.distances) == len(pairs)
    assert len(dataset.forward.distances) == len(pairs)


def test_two_ways_to_a_dataset_are_no_cycle(produce, liaison):
    produce(("raw", "left"))
    produce(("raw", "right"))
    produce(("left", "both"))
    produce(("right", "both"))
    dataset = provenance_of("both", liaison)
    assert not dataset.has_cycle
    assert list(dataset.back.distances) == ["both", "right", "left", "raw"]
    assert len(dataset.back.steps) == 4


def test_long_chains_are_cut_off_and_say_so(produce, liaison):
    names = [f"d{number}" for number in range(domain.MOST_STEPS + 3)]
    for read, written in pairwise(names):
        produce((read, written))
    forward = provenance_of(names[0], liaison)
    assert forward.is_cut
    assert forward.used_by[-1].name == names[domain.MOST_STEPS]
    back = provenance_of(names[-1], liaison)
    assert back.is_cut
    assert back.made_from[-1].name == names[2]
    middle = provenance_of(names[domain.MOST_STEPS], liaison)
    assert not middle.is_cut


def test_many_datasets_are_cut_off_and_say_so(produce, liaison, monkeypatch):
    monkeypatch.setattr(domain, "MOST_DATASETS", 3)
    for number in range(5):
        produce(("raw", f"reco{number}"))
    dataset = provenance_of("raw", liaison)
    assert dataset.is_cut
    assert len(dataset.used_by) == 3
    assert dataset.uses == 5


def test_many_requests_are_cut_off_and_say_so(produce, liaison, monkeypatch):
    monkeypatch.setattr(steps, "MOST_REQUESTS", 2)
    newest = None
    for number in range(3):
        newest = produce(("raw", f"reco{number}"))
    dataset = provenance_of("raw", liaison)
    assert dataset.is_cut
    assert dataset.used_by[0].step.stage.request == newest
    assert len(dataset.used_by) == 2
    assert dataset.uses == 3


def test_queries_do_not_grow_with_requests(produce, liaison):
    produce(("raw", "calib"), ("", "reco"))
    produce(("reco", "tuple"), ("", "x.{energy}"), scan="energy = 1, 2")

    def count() -> int:
        with CaptureQueriesContext(
            connection,
        ) as queries:
            provenance_of("reco", liaison)
        return len(queries)

    few = count()
    for number in range(5):
        produce(("raw", "calib"), ("", "reco"))
        produce(("reco", f"tuple{number}"), ("", f"x{number}"))
    assert count() <= few


def test_other_experiments_are_names_without_requests(
    produce, produce_for_dune, liaison, other_liaison, approver, shifter, admin
):
    dune = produce_for_dune(("dune.raw", "dune.reco"))
    nova = produce(("dune.reco", "nova.tuple"))
    produce_for_dune(("nova.tuple", "dune.plots"))

    dataset = provenance_of("nova.tuple", liaison)
    assert described(dataset.made_from) == [(1, "dune.reco", "")]
    assert dataset.used_by == []
    assert dataset.uses == 0
    read = provenance_of("dune.reco", liaison)
    assert read.makers == []
    assert described(read.used_by) == [(1, "nova.tuple", f"{nova} 1")]
    assert provenance_of("dune.raw", liaison) is None
    assert provenance_of("dune.plots", liaison) is None

    assert described(provenance_of("dune.reco", other_liaison).made_from) == [(1, "dune.raw", "")]
    for user in (approver, shifter, admin):
        whole = provenance_of("nova.tuple", user)
        assert described(whole.made_from) == [(1, "dune.reco", f"{dune} 1"), (2, "dune.raw", "")]
        assert whole.uses == 1
    assert provenance_of("nova.tuple", people.person("nobody")) is None


@pytest.fixture
def known(at):
    """Return a function that stores an answer of a catalogue."""
    catalogue = Catalogue.objects.create(name="sam", kind="json", base_url="/x")

    def store(name, **values):
        row = {"exists": True, "answered_at": at, "is_waiting": False, **values}
        return KnownDataset.objects.create(
            catalogue=catalogue, name=name, requested_at=at, due_at=at, **row
        )

    return store


def test_answers_of_catalogues(produce, liaison, known):
    produce(("raw", "reco"))
    row = known("reco", files=12)
    known("raw", exists=None, answered_at=None, is_waiting=True)
    dataset = provenance_of("reco", liaison)
    assert dataset.own_answers.newest == row
    assert dataset.answers["raw"].newest is None
    assert provenance_of("raw", liaison).own_answers.rows[0].exists is None
    Catalogue.objects.update(active=False)
    assert provenance_of("reco", liaison).own_answers.rows == []


def test_answers_about_datasets_of_others_are_hidden(
    produce, produce_for_dune, liaison, other_liaison, approver, known
):
    produce_for_dune(("", "dune.reco"))
    produce_for_dune(("", "dune.gen.{e}"), scan="e = 1, 2")
    produce_for_dune(("", "nova.reco"))
    produce_for_dune(("", "raw"), state=S.DRAFT)
    produce(("", "nova.reco"))
    for name in ("dune.reco", "dune.gen.1", "raw"):
        produce((name, f"{name}.tuple"))
    for name in ("dune.reco", "dune.gen.1", "raw", "nova.reco"):
        known(name, files=12)

    hidden = []
    for name in ("dune.reco", "dune.gen.1", "raw", "nova.reco"):
        if not provenance_of(name, liaison).own_answers.rows:
            hidden.append(name)
    # A draft of others claims no name, and what NOvA writes too is not only theirs.
    assert hidden == ["dune.reco", "dune.gen.1"]
    assert provenance_of("dune.reco", approver).own_answers.newest.files == 12
    assert provenance_of("dune.reco", other_liaison).own_answers.newest.files == 12


def test_number_of_uses_is_that_of_the_list(produce, liaison):
    produce(("raw", "gen.{e}"), ("", "sim.{e}"), ("", "merged"), scan="e = 1, 2")
    produce(("gen.1", "x"), ("", ""), ("", "y"))
    produce(("in.{e}", "gen.{e}"), ("", "z.{e}"), scan="e = 1, 3")
    produce(("raw", "gen.1"), ("", "w"))
    names = ["raw", "gen.{e}", "gen.1", "gen.2", "gen.3", "sim.1", "sim.{e}", "merged", "x", "y"]
    names += ["in.1", "in.2", "in.{e}", "z.3", "w"]
    counted = count_uses(names, liaison)
    for name in names:
        dataset = provenance_of(name, liaison)
        listed = len(dataset.readers) if dataset else 0
        assert (name, counted.get(name, 0)) == (name, listed)

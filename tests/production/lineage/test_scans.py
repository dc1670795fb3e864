"""Parameter scans: how they are read, what the checks require, and where they show."""

import json

import pytest

from apps.core.errors import InvalidFields
from apps.production.domain.checks.report import check_report
from apps.production.domain.content.scan import MAX_POINTS, at_point, read_scan, scan_of
from apps.production.domain.content.serialization import plain, read_plain
from apps.production.domain.lineage.combination import KeyedContent, list_obstacles
from apps.production.domain.lineage.splits import SplitUnit, split
from apps.production.enums import RequestState
from tests.factories import requests
from tests.factories.requests import AT

TWO = "energy = 1, 2.5\n\nangle = -30, 0, 30\n"


def scanning(text="energy = 1, 2", **changes):
    values = {"configuration": "gen_{energy}.fcl", "output_dataset": "nova.mc.gen_{energy}"}
    values |= {"jobs": 400, "events": 4_000_000, **changes}
    second = {
        "configuration": "sim.fcl",
        "output_dataset": "nova.mc.sim_{energy}",
        "jobs": 400,
        "events": 4_000_000,
    }
    stages = (requests.stage("generation", **values), requests.stage("simulation", **second))
    return requests.content(scan=text, stages=stages)


def test_the_last_parameter_varies_fastest():
    scan = read_scan("energy = 1, 2.5\n\nangle = 30, 0\n")
    assert scan.faults == ()
    assert [point.label for point in scan.points] == [
        "energy = 1, angle = 30",
        "energy = 1, angle = 0",
        "energy = 2.5, angle = 30",
        "energy = 2.5, angle = 0",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("energy 1, 2", "Line 1: write a parameter"),
        ("energy = 1, 2\nAngle = 1, 2", "Line 2: write a parameter"),
        ("energy =", "Line 1: write a parameter"),
        ("energy = 1,, 2", "is not a value"),
        ("energy = 1, $(id)", "is not a value"),
        ("energy = 1, a b", "is not a value"),
        ("energy = 1, 2\nenergy = 3, 4", "Line 2: energy is already listed"),
        ("energy = 1, 1", "Line 1: a value is listed twice"),
        ("energy = 1", "one point"),
        (f"n = {', '.join(map(str, range(MAX_POINTS + 1)))}", "201 points"),
    ],
)
def test_a_fault_names_its_line(text, words):
    scan = read_scan(text)
    assert scan.points == ()
    assert scan.count == 1
    assert len(scan.faults) == 1
    assert words in scan.faults[0]


def test_each_point_has_its_names_and_its_share():
    content = scanning()
    _, second = (at_point(content, point) for point in scan_of(content).points)
    generation, simulation = second.stages
    assert (generation.configuration, generation.output_dataset) == ("gen_2.fcl", "nova.mc.gen_2")
    assert (simulation.configuration, simulation.output_dataset) == ("sim.fcl", "nova.mc.sim_2")
    assert (generation.jobs, generation.events) == (200, 2_000_000)


def test_jobs_belong_to_points_in_order():
    scan = read_scan("energy = 1, 2, 5")
    assert [scan.point_of(job, 6).number for job in range(6)] == [1, 1, 2, 2, 3, 3]
    assert read_scan("").point_of(5, 6) is None


def test_it_is_kept_in_yaml_and_json():
    content = scanning("energy = 1, 2")
    assert read_plain(plain(content), content.workflow) == (content, {})


@pytest.mark.django_db
def test_a_good_scan_passes_all_checks(nova):
    assert [
        finding
        for finding in check_report(scanning(), experiment=nova, at=AT).findings
        if finding.blocks
    ] == []


@pytest.mark.django_db
def test_an_unknown_name_is_reported_at_its_field(nova):
    report = check_report(
        scanning(configuration="gen_{enrgy}_{energy}.fcl"), experiment=nova, at=AT
    ).findings
    assert [(problem.path, problem.message) for problem in report if problem.blocks] == [
        ("stages.0.configuration", "The scan has no parameter “enrgy”.")
    ]


@pytest.mark.django_db
def test_the_fix_gives_each_point_its_dataset(nova):
    content = scanning(output_dataset="nova.mc.gen")
    report = check_report(content, experiment=nova, at=AT)
    fix = report.fix_of("scan_outputs", "stages.0.output_dataset")
    assert fix.applied_to(content).stages[0].output_dataset == "nova.mc.gen_{energy}"


@pytest.mark.django_db
def test_datasets_are_looked_up_at_each_point(nova, liaison, approver, settings, tmp_path):
    path = tmp_path / "datasets.json"
    path.write_text(
        json.dumps({"datasets": [{"name": "nova.mc.gen_2", "files": 5, "events": 100}]})
    )
    settings.DATASET_CATALOGUE = f"file:{path}"
    findings = check_report(scanning(), experiment=nova, at=AT).findings
    assert [
        (problem.rule, problem.path) for problem in findings if problem.rule == "output_is_new"
    ] == [("output_is_new", "stages.0.output_dataset")]
    assert any(
        problem.message.startswith("At energy = 2: This dataset already exists")
        for problem in findings
    )
    reads = requests.content(stages=(requests.stage("reco", input_dataset="nova.mc.sim_1"),))
    assert "input_exists" in {
        finding.rule for finding in check_report(reads, experiment=nova, at=AT).findings
    }
    requests.request_in(
        RequestState.SUBMITTED,
        by=liaison,
        approver=approver,
        experiment=nova,
        scan="energy = 1, 2",
        stages=scanning().stages,
    )
    assert "input_exists" not in {
        finding.rule for finding in check_report(reads, experiment=nova, at=AT).findings
    }


def test_it_is_neither_split_nor_combined():
    with pytest.raises(InvalidFields, match="points of its parameter scan"):
        split(scanning(), SplitUnit.EVENTS, 1_000_000)
    assert list_obstacles(
        KeyedContent("NOVA-0001", scanning()), KeyedContent("NOVA-0002", scanning())
    ) == ["Parameter scans cannot be combined, as their jobs are divided among their points."]


@pytest.mark.django_db
def test_pages_and_api_show_its_points(client, nova, liaison):
    request = requests.draft(
        liaison, nova, scan="energy = 1, 2\nangle = 0, 1, 2", stages=scanning().stages
    )
    client.force_login(liaison)
    page = client.get(request.get_absolute_url()).content.decode()
    assert "6 points" in page
    assert "scan of 6 points" in client.get("/requests/").content.decode()
    shown = client.get(f"/api/v1/requests/{request.key}/").json()
    assert (shown["scan"], shown["points"]) == ("energy = 1, 2\nangle = 0, 1, 2", 6)
    form = client.get(f"/requests/{request.key}/edit/").content.decode()
    assert "angle = 0, 1, 2" in form


def test_list_is_filtered_by_scans(client, nova, liaison):
    client.force_login(liaison)
    scan = requests.draft(liaison, nova, title="Scan", scan="energy = 1, 2")
    other = requests.draft(liaison, nova, title="Other")
    for address in ("/requests/", "/api/v1/requests/"):
        found = {
            wanted: client.get(address, {"scan": wanted}).content.decode()
            for wanted in ("yes", "no", "")
        }
        assert {name: (scan.key in text, other.key in text) for name, text in found.items()} == {
            "yes": (True, False),
            "no": (False, True),
            "": (True, True),
        }

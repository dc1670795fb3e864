"""What is posted: files, histograms, results of other tools, over the API,
and what becomes of it.
"""

import json
import math

import pytest

from apps.core.errors import InvalidFields, InvalidTransition, NotAllowed
from apps.datasets.domain import output_files
from apps.datasets.domain.output_files import NamedFile
from apps.datasets.models import OutputFile
from apps.quality.checks import Histogram, Posted
from apps.quality.domain import posts
from apps.quality.domain.posts import name_files
from apps.quality.models import ExternalResult, HistogramPair, QualityRun, Waiver
from tests.factories.quality import LATER
from tests.factories.requests import stage as written_stage


def url(produced, action: str = "") -> str:
    return f"/api/v1/quality/{produced.request.key}/{action}"


def post(client, produced, action, **sent):
    return client.post(url(produced, f"{action}/"), sent, format="json")


HISTOGRAM = {
    "stage": 2,
    "name": "pt",
    "edges": [0, 1, 2.5],
    "reference": [100, 300],
    "observed": [10, 30],
}


def test_files_are_named_once_by_each_reporter(produced, liaison, api):
    sent = {
        "stage": 1,
        "key": "4711",
        "files": [{"name": "a.root", "size_bytes": 5}, {"name": "b", "size_bytes": 7}],
    }
    for _ in range(2):
        assert post(api(liaison), produced, "files", **sent).json() == {"noted": 2}
    assert OutputFile.objects.count() == 2
    assert post(api(liaison), produced, "files", **{**sent, "files": sent["files"][:1]}).json() == {
        "noted": 1
    }
    assert list(OutputFile.objects.values_list("name", "size_bytes", "by")) == [
        ("a.root", 5, "nova-liaison")
    ]


def test_files_that_two_jobs_or_two_requests_name_are_found(produced, make, nova):
    produced.name(0, ("a", 5), ("b", 0), key="1")
    produced.name(0, ("a", 5), key="2")
    other = make("running", stages=(written_stage("other", output_dataset="elsewhere"),))
    other.name(0, ("b", 9))
    produced.judge()
    said = produced.said()
    assert said[0, "duplicates", "files"] == said[0, "file_sizes", ""] == "failed"
    (why,) = [result.why for result in produced.quality().results if result.subject == "files"
              and result.check_name == "duplicates" and result.position == 0]  # fmt: skip
    assert why == f"Listed more than once: a, b ({other.request.key})."


def test_two_requests_that_write_one_dataset_are_a_warning(produced, make):
    make("running")
    produced.judge()
    assert produced.said()[0, "duplicates", "dataset"] == "warned"


BAD_FILES = [
    ({"files": []}, "files"),
    ({"files": [{"name": "a", "size_bytes": 1}] * 2}, "files.1.name"),
    ({"files": [{"name": "a", "size_bytes": -1}]}, "files.0.size_bytes"),
    ({"files": [{"name": "a\n", "size_bytes": 1}]}, "files.0.name"),
    ({"files": [{"name": "a", "size_bytes": 1, "path": "/"}]}, "files.0.path"),
    ({"files": [{"name": "a", "size_bytes": 1}], "key": ""}, "key"),
    ({"files": [{"name": "a", "size_bytes": 1}], "stage": 0}, "stage"),
    ({"files": [{"name": "a", "size_bytes": 1}], "more": 1}, "more"),
    ({"files": [{"name": str(n), "size_bytes": 1} for n in range(1001)]}, "files"),
]


def test_bad_files_are_refused_by_field(produced, liaison, api):
    client = api(liaison)
    for sent, wrong in BAD_FILES:
        answer = post(client, produced, "files", **{"stage": 1, "key": "k", **sent})
        assert (answer.status_code, list(answer.json())) == (400, [wrong])
    assert not OutputFile.objects.exists()


BAD_HISTOGRAMS = [
    ({"edges": [0, 1]}, ["observed", "reference"]),
    ({"edges": [0, 0, 1]}, ["edges"]),
    ({"observed": [1, "2"]}, ["observed.1"]),
    ({"observed": [1, True]}, ["observed.1"]),
    ({"reference": [1, None]}, ["reference.1"]),
    ({"reference": [1, -1]}, ["reference"]),
    ({"name": ""}, ["name"]),
    ({"name": " pt"}, ["name"]),
    ({"link": "javascript:alert(1)"}, ["link"]),
    ({"bins": 2}, ["bins"]),
    ({"edges": list(range(1100))}, ["edges"]),
]


def test_bad_histograms_are_refused_by_field(produced, liaison, api):
    client = api(liaison)
    for changes, wrong in BAD_HISTOGRAMS:
        answer = post(client, produced, "histograms", **{**HISTOGRAM, **changes})
        assert (answer.status_code, sorted(answer.json())) == (400, wrong)
    assert not HistogramPair.objects.exists()


def test_body_with_infinity_is_refused(produced, liaison, api):
    text = json.dumps({**HISTOGRAM, "observed": [1, math.inf]})
    answer = api(liaison).post(url(produced, "histograms/"), text, content_type="application/json")
    assert answer.status_code == 400


def test_histogram_is_judged_and_replaced(produced, liaison, api):
    assert post(api(liaison), produced, "histograms", **HISTOGRAM).status_code == 201
    produced.judge()
    assert produced.said()[1, "histograms", "pt"] == "passed"
    again = post(api(liaison), produced, "histograms", **{**HISTOGRAM, "observed": [30, 10]})
    assert (again.status_code, produced.quality().is_stale) == (200, True)
    produced.judge()
    assert produced.said()[1, "histograms", "pt"] == "failed"
    listed = api(liaison).get(url(produced, "histograms/")).json()
    assert [(one["name"], one["observed"]) for one in listed] == [("pt", [30, 10])]
    assert QualityRun.objects.get(number=1).results.get(check_name="histograms").outcome == "passed"


def test_result_of_another_tool_is_judged(produced, shifter, api):
    sent = {"name": "dqm/occupancy", "outcome": "failed", "why": "<b>dead channels</b>", "value": 0.2,
            "link": "https://dqm.example.org/1"}  # fmt: skip
    assert post(api(shifter), produced, "results", **sent).status_code == 201
    assert (
        post(
            api(shifter), produced, "results", **{**sent, "stage": 1, "outcome": "passed"}
        ).status_code
        == 201
    )
    produced.judge()
    said = produced.said()
    assert (said[None, "external", "dqm/occupancy"], said[0, "external", "dqm/occupancy"]) == (
        "failed",
        "passed",
    )
    for wrong in (
        {"outcome": "perfect"},
        {"why": " "},
        {"value": "1"},
        {"link": "ftp://x/"},
        {"name": "a\nb"},
    ):
        assert post(api(shifter), produced, "results", **{**sent, **wrong}).status_code == 400
    assert ExternalResult.objects.count() == 2


@pytest.mark.parametrize("action", ["files", "histograms", "results"])
def test_who_may_post_and_when(action, produced, make, admin, other_liaison, liaison, api):
    assert post(api(other_liaison), produced, action).status_code == 404
    assert post(api(admin), produced, action).status_code == 403
    assert post(api(liaison), produced, action, stage=9).status_code == 400
    draft = make("awaiting_approval")
    sent = {
        "files": {"stage": 1, "key": "k", "files": [{"name": "a", "size_bytes": 1}]},
        "histograms": HISTOGRAM,
        "results": {"name": "x", "outcome": "passed", "why": "y"},
    }[action]
    assert post(api(liaison), draft, action, **sent).status_code == 409


def test_services_themselves_refuse(produced, other_liaison, liaison, make):
    for by, expected in ((other_liaison, NotAllowed), (liaison, InvalidTransition)):
        target = make("draft") if by == liaison else produced
        with pytest.raises(expected):
            name_files(stage=target.stage(0), key="k", files=[NamedFile("a", 1)], by=by, at=LATER)


def test_limits_of_a_stage(produced, liaison, monkeypatch):
    monkeypatch.setattr(posts, "HISTOGRAMS_A_STAGE", 1)
    monkeypatch.setattr(output_files, "FILES_A_STAGE", 1)
    monkeypatch.setattr(posts, "RESULTS_A_REQUEST", 1)
    bins = {"edges": [0, 1], "reference": [1], "observed": [1]}
    passed = {"outcome": "passed", "why": "x"}
    by_and_at = {"by": liaison, "at": LATER}
    for name in ("a", "a"):
        posts.post_histogram(
            stage=produced.stage(0), posted=Histogram(name=name, **bins), **by_and_at
        )
        posts.post_result(request=produced.request, posted=Posted(name=name, **passed), **by_and_at)
    with pytest.raises(InvalidFields, match="at most 1"):
        posts.post_histogram(
            stage=produced.stage(0), posted=Histogram(name="b", **bins), **by_and_at
        )
    with pytest.raises(InvalidFields, match="at most 1"):
        posts.post_result(request=produced.request, posted=Posted(name="b", **passed), **by_and_at)
    with pytest.raises(InvalidFields, match="at most 1"):
        name_files(
            stage=produced.stage(0),
            key="k",
            files=[NamedFile("a", 1), NamedFile("b", 1)],
            **by_and_at,
        )


def test_standing_waiving_and_withdrawing_over_the_api(produced, approver, liaison, api):
    assert api(liaison).get(url(produced)).json()["run"] is None
    assert post(api(liaison), produced, "again", reason="now").json()["run"]["state"] == "waiting"
    produced.judge()
    told = api(liaison).get(url(produced)).json()
    opened = [one for one in told["results"] if one["is_open"]]
    assert (told["passes"], opened[0]["check"], opened[0]["outcome"]) == (
        False,
        "missing_jobs",
        "unknown",
    )
    sent = {"result": opened[0]["id"], "reason": "Seen by hand.", "in_part": True}
    assert post(api(liaison), produced, "waive", **sent).status_code == 403
    assert post(api(approver), produced, "waive", **{**sent, "reason": ""}).status_code == 400
    told = post(api(approver), produced, "waive", **sent).json()
    (waiver,) = told["waivers"]
    assert (waiver["by"], waiver["in_part"], waiver["check"]) == ("opg-one", True, "missing_jobs")
    assert post(api(approver), produced, "waive", **sent).status_code == 409
    taken = {"waiver": waiver["id"], "reason": "Wrong."}
    assert post(api(liaison), produced, "withdraw-waiver", **taken).status_code == 403
    assert post(api(approver), produced, "withdraw-waiver", **taken).status_code == 200
    assert Waiver.objects.get().withdrawn_reason == "Wrong."

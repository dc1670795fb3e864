"""Limits that admins set: which holds, who set it when and why,
and that a run keeps those it was judged by.
"""

import pytest
from django.test import Client

from apps.core.errors import InvalidFields
from apps.core.models import Event
from apps.production.models import WorkflowType
from apps.quality.domain.data_quality import data_quality_of
from apps.quality.domain.thresholds import save_thresholds, settings_for
from apps.quality.models import QualityRun, Thresholds
from apps.quality.tasks import check_all
from tests.factories.quality import LATER


def save(**changes):
    values = {
        "check": "missing_jobs",
        "effect": "block",
        "unknown": "block",
        "limits": {},
        "reason": "because",
    }
    return save_thresholds(**{**values, "by": "admin-one", "at": LATER, **changes})


def test_narrower_rows_win_and_the_newest_of_each(produced, nova, dune):
    kind = produced.fresh().workflow.type
    other = WorkflowType.objects.exclude(pk=kind.pk).first()
    save(limits={"most_missing": 0.9, "warn_missing": 0.8})
    save(limits={"most_missing": 0.5})
    save(limits={"most_missing": 0.4}, workflow=kind)
    save(limits={"most_missing": 0.3}, experiment=nova, effect="warn")
    for elsewhere in (
        {"workflow": other},
        {"experiment": dune},
        {"workflow": kind, "experiment": dune},
    ):
        save(limits={"most_missing": 0.0}, effect="off", **elsewhere)
    setting = settings_for(produced.fresh())["missing_jobs"]
    assert (setting.limits, setting.effect) == ({"most_missing": 0.3, "warn_missing": 0}, "warn")
    save(limits={"most_missing": 0.1}, workflow=kind, experiment=nova)
    assert settings_for(produced.fresh())["missing_jobs"].limits["most_missing"] == 0.1
    save(workflow=kind, experiment=nova, effect="inherit")
    assert settings_for(produced.fresh())["missing_jobs"].limits["most_missing"] == 0.3


def test_run_keeps_the_thresholds_it_was_judged_by(produced, browse, liaison):
    produced.run_jobs(missing=1)
    produced.judge()
    assert produced.said()[1, "missing_jobs", ""] == "failed"
    row = save(limits={"most_missing": 0.5, "warn_missing": None}, reason="The disk was full.")
    page = browse(liaison).get(f"/quality/{produced.request.key}/").content.decode()
    assert "Thresholds have changed since." in page
    produced.judge()
    assert produced.said()[1, "missing_jobs", ""] == "passed"
    kept = [
        next(threshold for threshold in run.thresholds if threshold["check"] == "missing_jobs")
        for run in QualityRun.objects.order_by("number")
    ]
    assert [one["limits"]["most_missing"] for one in kept] == [0, 0.5]
    assert [one["rows"] for one in kept] == [[], [row.pk]]


def test_what_is_in_data_quality_is_judged_again_when_thresholds_change(produced):
    """Nothing but the row is needed for it: the sweep finds it,
    also when the worker that was told was killed.
    """
    produced.all_good()
    produced.run_jobs(missing=0)
    produced.judge()
    assert data_quality_of(produced.fresh()).passes
    save(limits={"warn_missing": 0.01})
    assert not data_quality_of(produced.fresh()).passes, (
        "nothing is closed by the thresholds of before"
    )
    assert produced.quality().is_stale
    save(check="files_written", limits={"files_per_job": 3})
    check_all()
    assert QualityRun.objects.count() == 2
    assert produced.said()[0, "files_written", ""] == "failed"
    check_all()
    assert QualityRun.objects.count() == 2, "once is enough"
    save(check="files_written", effect="inherit")
    check_all()
    assert produced.fresh().state == "done"


def test_check_that_is_off_says_nothing(produced):
    save(effect="off")
    produced.judge()
    assert not [key for key in produced.said() if key[1] == "missing_jobs"]


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"check": "nonsense"}, "check_name"),
        ({"reason": " "}, "reason"),
        ({"limits": {"most": 1}}, "limits"),
        ({"limits": {"most_missing": "1"}}, "limits"),
        ({"limits": {"most_missing": True}}, "limits"),
        ({"limits": {"most_missing": float("nan")}}, "limits"),
        ({"limits": [1]}, "limits"),
    ],
)
def test_wrong_thresholds_are_refused(changes, wrong, db):
    with pytest.raises(InvalidFields) as refused:
        save(**changes)
    assert list(refused.value.problems) == [wrong]
    assert not Thresholds.objects.exists()


def test_admin_sets_them_with_a_reason_and_nothing_is_changed_or_deleted(admin, nova):
    client = Client()
    client.force_login(admin)
    sent = {
        "check_name": "file_sizes", "experiment": nova.pk, "effect": "block", "unknown": "pass",
        "limits": '{"smallest_bytes": 1000}', "reason": "",
    }  # fmt: skip
    address = "/admin/quality/thresholds/add/"
    assert "“Reason” is required" in client.post(address, sent).content.decode()
    wrong = client.post(address, {**sent, "reason": "x", "limits": '{"smallest": 1}'})
    assert "Unknown limit “smallest”" in wrong.content.decode()
    assert client.post(address, {**sent, "reason": "Stubs of 200 bytes."}).status_code == 302
    row = Thresholds.objects.get()
    assert (row.by, row.reason, row.limits) == (
        "admin-one",
        "Stubs of 200 bytes.",
        {"smallest_bytes": 1000},
    )
    event = Event.objects.get(kind="quality.thresholds_saved")
    assert (event.actor, event.reason, event.data["new"]["limits"]) == (
        "admin-one",
        row.reason,
        row.limits,
    )
    assert (
        client.post(f"/admin/quality/thresholds/{row.pk}/delete/", {"post": "yes"}).status_code
        == 403
    )
    assert (
        client.post(
            f"/admin/quality/thresholds/{row.pk}/change/", {**sent, "reason": "y"}
        ).status_code
        == 403
    )
    assert "Stubs of 200 bytes." in client.get("/admin/quality/thresholds/").content.decode()

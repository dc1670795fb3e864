"""Captures of one submission that differ are marked, in whatever order and batches they come."""

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from apps.archive.models import ArchivedJob
from apps.core.models import Event
from tests.factories.archive import START, captured_job, store
from tests.pages import text_of

pytestmark = pytest.mark.django_db


def conflicts():
    return [bool(row.conflict) for row in ArchivedJob.objects.order_by("pk")]


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"script": b"other"}, "script"),
        ({"environment": b"\0\0\0\0"}, "environment"),
        ({"arguments": "c"}, "arguments"),
    ],
)
def test_what_would_run_again_differs(changes, part):
    store(captured_job(1, arguments="a b"), captured_job(2))
    store(captured_job(1, sender="farm-1", **{"arguments": "a b"} | changes))

    row = ArchivedJob.objects.get(job_id="1")
    assert row.conflict == (
        f"Captures of this job differ in {part}. Sent by: capture beside the portal, farm-1."
    )
    assert not ArchivedJob.objects.get(job_id="2").conflict
    assert Event.objects.get(kind="archive.conflict").data == {"job_ids": ["1"]}


def test_id_used_again_at_once_is_no_conflict_of_the_portal_s_own_captures():
    store(
        captured_job(1),
        captured_job(1, submitted_at=START + timedelta(seconds=3), script=b"another submission"),
    )

    assert not any(conflicts())


def test_equal_captures_and_another_submission_are_no_conflict():
    store(
        captured_job(1), captured_job(1), captured_job(1, submitted_at=START + timedelta(seconds=1))
    )
    store(
        captured_job(1, minutes=5, script=b"another submission"),
        captured_job(1, cluster="jura", script=b"other"),
    )

    assert not any(conflicts())


def test_arguments_that_accounting_added_are_no_conflict():
    store(captured_job(1))
    ArchivedJob.objects.update(arguments="a b")
    store(captured_job(1))

    assert not any(conflicts())


def test_conflict_is_found_within_one_batch_and_noted_once():
    forged = captured_job(
        1, submitted_at=START + timedelta(seconds=3), script=b"forged", sender="farm-1"
    )
    store(captured_job(1), forged)
    before = [row.conflict for row in ArchivedJob.objects.order_by("pk")]
    store(captured_job(1, script=b"third", sender="farm-2"))

    assert (
        before
        == ["Captures of this job differ in script. Sent by: capture beside the portal, farm-1."]
        * 2
    )
    assert [row.conflict for row in ArchivedJob.objects.order_by("pk")] == before
    assert Event.objects.filter(kind="archive.conflict").count() == 1


def test_page_and_api_show_the_conflict_and_lead_to_the_other_capture(client, shifter):
    store(
        captured_job(1),
        captured_job(
            1, submitted_at=START + timedelta(seconds=3), script=b"<b>forged", sender="farm-1"
        ),
    )
    first, second = ArchivedJob.objects.order_by("pk")
    client.force_login(shifter)

    page = client.get(f"/archive/{first.pk}/")
    assert "<b>Conflict:</b> Captures of this job differ in script." in text_of(page)
    assert f"/archive/{first.pk}/diff/?other={second.pk}" in page.content.decode()
    assert "by farm-1" in text_of(client.get(f"/archive/{second.pk}/"))
    shown = client.get(f"/api/v1/archive/{second.pk}/").json()
    assert (shown["sender"], shown["conflict"]) == ("farm-1", second.conflict)


captures = st.tuples(st.integers(0, 150), st.sampled_from([b"a", b"b"]))


class AnyOrder(TestCase):
    @settings(max_examples=40)
    @given(
        times=st.lists(captures, min_size=1, max_size=8),
        cuts=st.lists(st.integers(1, 7), max_size=3),
    )
    def test_marks_are_those_of_the_captures_not_of_their_batches(self, times, cuts):
        """Each submission is a run of captures at most a minute apart;
        it is marked if its scripts differ.
        """
        jobs = [
            captured_job(
                1, submitted_at=START + timedelta(seconds=at), script=script, sender="farm-1"
            )
            for at, script in times
        ]
        for first, last in zip([0, *sorted(cuts)], [*sorted(cuts), len(jobs)], strict=True):
            store(*jobs[first:last])

        kept = dict(reversed(times))
        for row in ArchivedJob.objects.all():
            at = (row.submitted_at - START).total_seconds()
            near = {script for other, script in times if abs(other - at) <= 60}
            assert bool(row.conflict) or len(near) == 1
            assert row.script_bytes == len(kept[at])
        if len({script for _, script in times}) == 1:
            assert not any(conflicts())

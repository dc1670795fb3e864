"""An approver or admin chooses which of the captures of a job that differ is right."""

import threading
from datetime import timedelta

import pytest
from django.db import connection
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from apps.accounts.enums import Role
from apps.archive.domain.store.conflicts import (
    MOST_UNSTORED,
    choice_events,
    choose_capture,
    undo_capture_choice,
)
from apps.archive.domain.store.contents import archived_job_for, archived_jobs_for, read_blob
from apps.archive.models import ArchivedJob
from apps.clusters.schedulers.base import JobState
from apps.core.errors import DomainError, InvalidFields, InvalidTransition, NotAllowed, StaleState
from apps.core.models import Event
from apps.submission.domain.retries.owned import distrust
from apps.submission.enums import LeftOut
from tests.factories import clusters, jobs, people
from tests.factories.archive import START, captured_job, store
from tests.pages import text_of

pytestmark = pytest.mark.django_db

LATER = START + timedelta(seconds=3)


def true_capture(**changes):
    return captured_job(1, **{"script": b"true"} | changes)


def forged_capture(**changes):
    return captured_job(
        1, **{"script": b"forged", "sender": "farm-1", "submitted_at": LATER} | changes
    )


def rows():
    return list(ArchivedJob.objects.order_by("pk"))


def choose(job, by, **changes):
    job.refresh_from_db()
    values = {"conflict_version": job.conflict_version, "reason": "The log shows it.", "at": START}
    return choose_capture(job=job, by=by, **values | changes)


def undo(job, by, **changes):
    job.refresh_from_db()
    values = {"conflict_version": job.conflict_version, "reason": "It was forged.", "at": START}
    return undo_capture_choice(job=job, by=by, **values | changes)


def test_choice_can_be_undone_and_made_again(approver, shifter):
    store(true_capture(), forged_capture())
    first, second = rows()
    with pytest.raises(InvalidTransition):
        undo(first, approver)
    choose(second, approver)
    with pytest.raises(NotAllowed):
        undo(second, shifter)
    with pytest.raises(InvalidFields):
        undo(second, approver, reason=" ")
    with pytest.raises(StaleState):
        undo(second, approver, conflict_version=0)

    undo(first, approver)
    assert [distrust(row, {"", "farm-1"}) for row in rows()] == [LeftOut.CONFLICT] * 2
    assert not any(row.chosen_by or row.chosen_reason for row in rows())
    choose(first, approver)
    assert [bool(row.open_conflict) for row in rows()] == [False, True]
    events = [(event.kind, event.target_id, event.reason) for event in choice_events(rows())]
    assert events == [
        ("archive.capture_chosen", str(first.pk), "The log shows it."),
        ("archive.choice_undone", str(second.pk), "It was forged."),
        ("archive.capture_chosen", str(second.pk), "The log shows it."),
    ]


def test_page_undoes_a_choice_and_lists_all(client, approver, shifter):
    store(true_capture(), forged_capture())
    first, second = rows()
    choose(second, approver)
    second.refresh_from_db()
    client.force_login(approver)
    address = f"/archive/{second.pk}/undo-choice/"
    assert f'formaction="{address}"' in text_of(client.get(f"/archive/{first.pk}/"))

    form = {"conflict_version": second.conflict_version, "reason": "<i>forged"}
    page = text_of(client.post(address, form, follow=True))
    assert "The job cannot be retried from this capture" in page
    assert "undid the choice of the capture" in page
    assert "The log shows it." in page
    assert "&lt;i&gt;forged" in page
    assert "Undo choice" not in page
    assert "Nothing was changed" in text_of(client.post(address, form, follow=True))


def test_api_undoes_a_choice(client, approver):
    store(true_capture(), forged_capture())
    _, second = rows()
    choose(second, approver)
    second.refresh_from_db()
    client.force_login(approver)
    body = {"conflict_version": second.conflict_version, "reason": "forged"}
    address = f"/api/v1/archive/{second.pk}/undo-choice/"
    answer = client.post(address, body, "application/json")
    assert (answer.status_code, answer.json()["chosen_at"]) == (200, None)
    assert client.post(address, body, "application/json").status_code == 409


def test_chosen_capture_is_that_of_the_job_and_no_longer_blocked(approver):
    store(true_capture())
    store(forged_capture())
    first, second = rows()
    record = jobs.bare(
        job_id="1", spool_id="1", submitted_at=START, user="alice", state=JobState.FAILED
    )
    (job,) = jobs.store(clusters.cluster("alps", "slurm"), record, at=START)
    assert archived_job_for(job) == first
    assert distrust(archived_job_for(job), {""}) == LeftOut.CONFLICT

    choose(second, approver)

    assert archived_job_for(job) == second
    assert archived_jobs_for([job]) == {job.pk: second}
    assert read_blob(archived_job_for(job).script) == b"forged"
    assert distrust(archived_job_for(job), {""}) == LeftOut.UNTRUSTED
    assert distrust(archived_job_for(job), {"farm-1"}) is None
    first, second = rows()
    assert first.open_conflict
    assert (second.open_conflict, second.chosen_by, second.chosen_at) == (
        "",
        approver.username,
        START,
    )
    event = Event.objects.get(kind="archive.capture_chosen")
    assert (event.target_id, event.reason) == (str(second.pk), "The log shows it.")


def test_another_choice_replaces_the_first(approver):
    store(true_capture(), forged_capture())
    first, second = rows()
    choose(second, approver)
    choose(first, approver, reason="Misread.")

    assert [(row.chosen_reason, bool(row.open_conflict)) for row in rows()] == [
        ("Misread.", False),
        ("", True),
    ]
    with pytest.raises(InvalidTransition, match="in use already"):
        choose(first, approver)


def test_stored_capture_is_chosen_where_the_other_is_not_stored(approver):
    store(true_capture())
    store(forged_capture(submitted_at=START))
    (row,) = rows()
    assert [capture["sender"] for capture in row.unstored_captures] == ["farm-1"]

    choose(row, approver)
    store(forged_capture(submitted_at=START))
    store(true_capture())

    assert not rows()[0].open_conflict
    assert Event.objects.filter(kind="archive.conflict").count() == 1


@pytest.mark.parametrize("moment", [START, LATER, START + timedelta(seconds=40)])
@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"script": b"third"}, "script"),
        ({"environment": b"\0\0\0\0", "script": b"true"}, "script and environment"),
    ],
)
def test_another_content_marks_the_conflict_again(moment, changes, part, approver):
    store(true_capture(), forged_capture())
    choose(rows()[0], approver)
    store(forged_capture(sender="farm-2", submitted_at=moment, **changes))

    assert all(row.open_conflict and not row.chosen_by for row in rows())
    sent_by = "capture beside the portal, farm-1, farm-2"
    assert {row.conflict for row in rows()} == {
        f"Captures of this job differ in {part}. Sent by: {sent_by}."
    }
    assert Event.objects.filter(kind="archive.conflict").count() == 2


def test_known_content_at_another_time_is_not_used_and_marks_nothing(approver):
    store(true_capture(), forged_capture())
    choose(rows()[0], approver)
    for script in (b"true", b"forged"):
        store(
            forged_capture(
                sender="farm-2", script=script, submitted_at=START + timedelta(seconds=len(script))
            )
        )

    first, *others = rows()
    assert len(others) == 3
    assert not first.open_conflict
    assert all(row.open_conflict for row in others)
    assert Event.objects.filter(kind="archive.conflict").count() == 1


def test_choice_of_captures_that_the_user_has_not_seen_is_refused(approver):
    store(true_capture(), forged_capture())
    first, _ = rows()
    store(forged_capture(script=b"third", submitted_at=START))

    with pytest.raises(StaleState, match="Another capture has arrived"):
        choose(first, approver, conflict_version=first.conflict_version)
    assert first.open_conflict


def test_hashes_of_one_job_do_not_grow_without_end():
    store(true_capture())
    for number in range(MOST_UNSTORED + 3):
        store(forged_capture(script=b"%d" % number, submitted_at=START))

    assert len(rows()[0].unstored_captures) == MOST_UNSTORED


def test_only_approvers_and_admins_of_all_captures_choose(nova, dune, liaison, shifter, admin):
    of_nova = people.person("nova-approver", (Role.APPROVER, nova))
    store(true_capture(), forged_capture())
    first, second = rows()
    ArchivedJob.objects.filter(pk=first.pk).update(experiment=nova)
    ArchivedJob.objects.filter(pk=second.pk).update(experiment=dune)

    for user in (liaison, shifter, of_nova):
        with pytest.raises(NotAllowed):
            choose(first, user)
    ArchivedJob.objects.update(experiment=nova)
    choose(first, of_nova)
    choose(second, admin)


def test_no_conflict_and_no_reason_are_refused(approver):
    store(true_capture())
    with pytest.raises(InvalidTransition, match="no captures that differ"):
        choose(rows()[0], approver)
    store(forged_capture())
    with pytest.raises(InvalidFields):
        choose(rows()[0], approver, reason=" ")


def test_page_shows_both_captures_and_the_choice(client, approver, shifter):
    store(true_capture())
    store(
        forged_capture(arguments="<b>bold"),
        forged_capture(submitted_at=START, sender="farm-2", script=b"third"),
    )
    first, second = rows()
    client.force_login(shifter)
    page = client.get(f"/archive/{first.pk}/")
    assert "Use this capture" not in page.content.decode()
    assert "capture beside the portal" in text_of(page)
    assert "farm-1" in text_of(page)
    assert "farm-2" in text_of(page)
    assert f"/archive/{second.pk}/script/" in page.content.decode()
    assert f"/archive/{first.pk}/diff/?other={second.pk}" in page.content.decode()
    assert "<b>bold" not in page.content.decode()

    client.force_login(approver)
    page = client.get(f"/archive/{first.pk}/").content.decode()
    assert f'formaction="/archive/{second.pk}/use-capture/"' in page
    assert f'name="conflict_version" value="{first.conflict_version}"' in page
    form = {"conflict_version": first.conflict_version, "reason": "<i>ticket"}
    answer = client.post(f"/archive/{second.pk}/use-capture/", form, follow=True)
    assert f"This capture is in use: {approver.username} chose it" in text_of(answer)
    assert "<i>ticket" not in answer.content.decode()
    assert f"{approver.username} chose another capture" in text_of(
        client.get(f"/archive/{first.pk}/")
    )
    again = client.post(f"/archive/{first.pk}/use-capture/", form, follow=True)
    assert "Nothing was changed" in text_of(again)
    assert "Enter a reason" in text_of(
        client.post(f"/archive/{first.pk}/use-capture/", follow=True)
    )


def test_api_chooses_and_shows_the_choice(client, approver, liaison):
    store(true_capture(), forged_capture(submitted_at=START))
    (row,) = rows()
    client.force_login(approver)
    before = client.get(f"/api/v1/archive/{row.pk}/").json()
    assert [capture["sender"] for capture in before["unstored_captures"]] == ["farm-1"]
    body = {"conflict_version": before["conflict_version"], "reason": "checked"}
    address = f"/api/v1/archive/{row.pk}/use-capture/"

    after = client.post(address, body, "application/json")
    assert after.status_code == 200
    assert (after.json()["chosen_by"], after.json()["chosen_reason"]) == (
        approver.username,
        "checked",
    )
    assert client.post(address, body, "application/json").status_code == 409


@pytest.mark.django_db(transaction=True)
def test_of_two_approvers_at_once_one_chooses():
    users = [people.person(name, (Role.APPROVER, None)) for name in ("ada", "bob")]
    store(true_capture(), forged_capture())
    captures = rows()
    together = threading.Barrier(2, timeout=30)
    answers = []

    def work(user, capture):
        try:
            together.wait()
            choose_capture(
                job=capture,
                by=user,
                conflict_version=capture.conflict_version,
                reason=f"by {user}",
                at=START,
            )
            answers.append(str(user))
        except DomainError as error:
            answers.append(type(error))
        finally:
            connection.close()

    threads = [
        threading.Thread(target=work, args=pair) for pair in zip(users, captures, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()

    assert StaleState in answers
    (chosen,) = ArchivedJob.objects.exclude(chosen_at=None)
    assert chosen.chosen_by in answers
    assert Event.objects.filter(kind="archive.capture_chosen").count() == 1


steps = st.one_of(
    st.tuples(st.just("store"), st.integers(0, 50), st.sampled_from([b"a", b"b", b"c"])),
    st.tuples(st.sampled_from(["choose", "choose", "undo"]), st.integers(0, 7), st.none()),
)


class AnySteps(TestCase):
    @settings(max_examples=40)
    @given(steps=st.lists(steps, min_size=2, max_size=10))
    def test_choice_holds_until_it_is_undone_or_a_new_content_arrives(self, steps):
        """All captures are less than a minute apart, so of one submission."""
        user = people.person("chooser", (Role.APPROVER, None))
        known: set[bytes] = set()
        chosen_pk = None
        for what, number, script in steps:
            stored = rows()
            if what == "store":
                store(forged_capture(submitted_at=START + timedelta(seconds=number), script=script))
                if script not in known:
                    known.add(script)
                    chosen_pk = None
            elif what == "undo":
                if chosen_pk:
                    undo(stored[number % len(stored)], user)
                chosen_pk = None
            elif stored and len(known) > 1:
                row = stored[number % len(stored)]
                if row.pk != chosen_pk:
                    choose(row, user)
                chosen_pk = row.pk
            assert [row.pk for row in rows() if row.chosen_at] == ([chosen_pk] if chosen_pk else [])
            assert all(
                bool(row.open_conflict) == (len(known) > 1 and row.pk != chosen_pk)
                for row in rows()
            )

"""Kept versions of a request: which are kept, and what differs between them."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.production.domain.content.model import list_changes
from apps.production.domain.content.revisions import (
    MAX_REVISIONS,
    compare,
    content_at,
    last_reviewed,
)
from apps.production.domain.content.serialization import plain, read_plain
from apps.production.domain.content.stages import content_of
from apps.production.domain.lifecycle.moves import check_request, submit_request
from apps.production.domain.requests.drafts import save_draft
from apps.production.domain.types.declaration import general_workflow
from apps.production.models import Request
from tests.factories.requests import AT, content, draft, request_in, stage
from tests.factories.workflows import monte_carlo


def save(request, by, *, minutes=0, **changed):
    request = Request.objects.get(pk=request.pk)
    return save_draft(
        request=request,
        content=replace(content_of(request), **changed),
        version=request.version,
        by=by,
        at=AT + timedelta(hours=2, minutes=minutes),
    )


def test_each_save_and_submission_is_kept(nova, liaison):
    made = draft(liaison, nova)
    save(made, liaison, title="later")
    submit_request(request=Request.objects.get(), by=liaison, at=AT + timedelta(hours=3))

    kept = made.revisions.order_by("id")

    assert [(one.version, one.is_submitted) for one in kept] == [(1, False), (2, False), (3, True)]
    assert [content_at(made, one).title for one in kept] == [content().title, "later", "later"]


def test_saves_of_one_person_within_ten_minutes_are_one(nova, liaison, both):
    made = draft(liaison, nova)
    for minute, by in [(0, liaison), (1, liaison), (9, liaison), (10, liaison), (11, both)]:
        save(made, by, minutes=minute, title=f"at {minute}")

    titles = [content_at(made, one).title for one in made.revisions.order_by("id")]

    assert titles == [content().title, "at 9", "at 10", "at 11"]


def test_no_more_versions_are_kept_than_the_bound(nova, liaison):
    made = draft(liaison, nova)
    for number in range(MAX_REVISIONS + 3):
        save(made, liaison, minutes=10 * number, title=str(number))

    assert made.revisions.count() == MAX_REVISIONS
    assert content_at(made, made.revisions.order_by("-id").first()).title == str(MAX_REVISIONS + 2)


def test_page_tells_what_changed_since_submission(nova, liaison, approver, browse):
    asked = request_in("changes_requested", by=liaison, experiment=nova, approver=approver)
    save(
        asked,
        liaison,
        stages=(stage("generation", memory_bytes=6_000_000_000), stage("simulation")),
    )
    asked.refresh_from_db()

    page = browse(approver).get(f"/requests/{asked.key}/changes/").content.decode()

    assert "stage 1 › memory" in page
    assert "<del>4 GB</del>" in page
    assert "<ins>6 GB</ins>" in page
    found = compare(asked, old=last_reviewed(asked), new=None)
    assert [change["path"] for change in found.changes] == ["stages.0.memory_bytes"]


def test_any_two_versions_are_compared(nova, liaison, browse):
    made = draft(liaison, nova, title="one")
    save(made, liaison, title="two <b>")
    save(made, liaison, minutes=20, title="three")
    first, second, _ = made.revisions.order_by("id").values_list("pk", flat=True)

    page = (
        browse(liaison)
        .get(f"/requests/{made.key}/changes/?old={first}&new={second}")
        .content.decode()
    )

    assert "<del>one</del>" in page
    assert "<ins>two &lt;b&gt;</ins>" in page
    assert "three" not in page.split("table")[1]


@pytest.mark.parametrize(
    "written", [content(), monte_carlo(), content(stages=(), deadline=None, title="")]
)
def test_plain_data_reads_back_the_same(written):
    assert read_plain(plain(written), written.workflow) == (written, {})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ["title", "deadline", "stages", "arguments", "requested_priority"]


@settings(max_examples=80, deadline=None)
@given(JSON | st.dictionaries(st.sampled_from(FIELDS), JSON))
def test_any_data_is_read_or_told_of(data):
    read, problems = read_plain(data, general_workflow())

    assert all(messages for messages in problems.values())
    assert list_changes(read, read) == []


def test_next_reviewer_sees_what_changed_since_the_last_review(
    nova, liaison, approver, both, browse
):
    asked = request_in("changes_requested", by=liaison, experiment=nova, approver=approver)
    assert [one["path"] for one in compare(asked, old=last_reviewed(asked), new=None).changes] == []
    for hours, title in ((1, "First answer"), (2, "Second answer")):
        at = AT + timedelta(days=1, hours=hours)
        asked = Request.objects.get(pk=asked.pk)
        save_draft(
            request=asked, content=content(title=title), version=asked.version, by=liaison, at=at
        )
        if hours == 1:
            submit_request(request=asked, by=liaison, at=at)
            check_request(request=asked, at=at)
    page = browse(approver).get(f"/requests/{asked.key}/changes/").content.decode()
    assert "<del>ND rock muons, 2026 beam</del>" in page
    assert "<ins>Second answer</ins>" in page
    found = browse(approver).get(f"/api/v1/requests/{asked.key}/changes/").json()["changes"]
    assert [(one["path"], one["new"]) for one in found] == [("title", "Second answer")]

"""The discussion of a request: threads, mentions, who may, and how much."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.core.errors import InvalidFields, InvalidTransition, NotAllowed
from apps.core.models import Event
from apps.production.domain import discussion
from apps.production.domain.requests.drafts import save_draft
from apps.production.models import Comment
from tests.factories.people import person
from tests.factories.requests import AT, content, draft, request_in


def write(request, by, text="Why 4 GB?", path="stages.0.memory_bytes", at=AT, **more):
    return discussion.write_comment(request=request, text=text, path=path, by=by, at=at, **more)


def last_event():
    return Event.objects.order_by("-id").first()


@pytest.fixture
def made(nova, liaison):
    return draft(liaison, nova)


def test_comment_names_its_place_and_who_is_mentioned(made, nova, dune, liaison, shifter):
    person("dune-only", ("liaison", dune))
    text = (
        f"@{shifter.username}, @{liaison.username}. and @dune-only @nobody-there "
        f"a@{liaison.username}"
    )
    wrote = write(made, shifter, text)

    assert wrote.place == "Stage 1 generation › Memory"
    event = last_event()
    assert (event.kind, event.actor) == ("request.commented", shifter.username)
    assert event.data == {
        "comment": wrote.pk,
        "thread": wrote.pk,
        "field": "stages.0.memory_bytes",
        "place": "Stage 1 generation › Memory",
        "mentioned": sorted([liaison.username, shifter.username]),
    }
    assert "text" not in event.data


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("@a", ["a"]),
        ("@a.b, @c-d. @a.b", ["a.b", "c-d"]),
        ("mail a@b.org", []),
        ("@", []),
        ("(@x)", ["x"]),
        ("@ü", ["ü"]),
        ("https://x/@y", []),
    ],
)
def test_mentions(text, names):
    assert discussion.mentions_in(text) == names


def test_who_does_not_see_the_request_takes_no_part(made, liaison, other_liaison):
    wrote = write(made, liaison)
    for attempt in (
        lambda: write(made, other_liaison),
        lambda: discussion.resolve_thread(comment=wrote, by=other_liaison, at=AT),
        lambda: discussion.edit_comment(comment=wrote, text="x", by=other_liaison, at=AT),
        lambda: discussion.withdraw_comment(comment=wrote, by=person("nobody"), at=AT),
    ):
        with pytest.raises(NotAllowed):
            attempt()
    assert Comment.objects.count() == 1


def test_only_who_wrote_it_changes_it(made, liaison, shifter):
    wrote = write(made, liaison)
    with pytest.raises(NotAllowed):
        discussion.edit_comment(comment=wrote, text="mine now", by=shifter, at=AT)
    changed = discussion.edit_comment(
        comment=wrote, text=f"Why? @{shifter.username}", by=liaison, at=AT
    )
    assert changed.edited_at == AT
    assert last_event().data["mentioned"] == [shifter.username]
    discussion.edit_comment(comment=wrote, text=f"Why so? @{shifter.username}", by=liaison, at=AT)
    assert last_event().data["mentioned"] == []


def test_withdrawn_text_is_gone_everywhere(made, liaison):
    wrote = write(made, liaison, "a secret word")
    discussion.withdraw_comment(comment=wrote, by=liaison, at=AT)
    assert not any("secret" in str(event.data) + event.reason for event in Event.objects.all())
    assert Comment.objects.get().text == ""
    with pytest.raises(InvalidTransition):
        discussion.edit_comment(comment=wrote, text="again", by=liaison, at=AT)


def test_thread_is_resolved_and_an_answer_opens_it_again(made, liaison, shifter):
    wrote = write(made, shifter)
    discussion.resolve_thread(comment=wrote, by=liaison, at=AT)
    with pytest.raises(InvalidTransition):
        discussion.resolve_thread(comment=wrote, by=liaison, at=AT)
    (thread,) = discussion.threads_of(made)
    assert not thread.is_open

    answer = write(made, shifter, "not yet", thread=wrote)
    again = write(made, liaison, "now?", thread=answer)

    (thread,) = discussion.threads_of(made)
    assert thread.is_open
    assert thread.comments == [wrote, answer, again]
    assert [comment.field for comment in thread.comments] == ["stages.0.memory_bytes"] * 3


def test_what_cannot_be_written_is_told(made, nova, liaison):
    other = write(draft(liaison, nova), liaison)
    for more in (
        {"text": " "},
        {"text": "x" * 5_001},
        {"text": "\0"},
        {"path": "stages.9"},
        {"path": "nothing"},
        {"thread": other},
    ):
        with pytest.raises(InvalidFields):
            write(made, liaison, **more)
    assert made.comments.count() == 0


def test_nobody_floods_a_request(made, liaison, monkeypatch):
    for _ in range(discussion.RATE):
        write(made, liaison)
    with pytest.raises(InvalidFields, match="within ten minutes"):
        write(made, liaison, at=AT + timedelta(minutes=9))
    write(made, liaison, at=AT + timedelta(minutes=11))
    monkeypatch.setattr(discussion, "MAX_COMMENTS", discussion.RATE + 1)
    with pytest.raises(InvalidFields, match="has reached the maximum"):
        write(made, liaison, at=AT + timedelta(hours=1))


def test_comment_does_not_disturb_who_edits(made, liaison, shifter):
    write(made, shifter)
    save_draft(request=made, content=content(title="new"), version=1, by=liaison, at=AT)
    assert made.version == 2


def test_form_links_a_comment_on_a_whole_stage_to_that_stage(nova, liaison, approver, browse):
    asked = request_in("changes_requested", by=liaison, experiment=nova, approver=approver)
    write(asked, approver, "Why not 4 GB?", path="stages.0", at=timezone.now())
    seen = browse(liaison).get(f"/requests/{asked.key}/edit/?check=1").content.decode()
    assert '<a href="#stage-1">Stage 1</a>' in seen
    _, _, own_fields = seen.partition('id="stage-1"')
    assert "Why not 4 GB?" in own_fields


def test_pages_without_javascript(made, liaison, shifter, browse):
    seen = browse(shifter)
    form = seen.get(f"/requests/{made.key}/comment/?about=stages.1.jobs").content.decode()
    assert '<option value="stages.1.jobs" selected>Stage 2 simulation › Jobs</option>' in form
    sent = seen.post(
        f"/requests/{made.key}/comment/",
        {"field": "stages.1.jobs", "text": "<b>few</b> @nobody-there"},
        follow=True,
    )
    page = sent.content.decode()
    assert "&lt;b&gt;few&lt;/b&gt;" in page
    assert "Not notified, because they do not have access to this request: nobody-there." in page
    assert "1 open of 1" in page

    mine = browse(liaison)
    wrote = Comment.objects.get()
    assert "1 open of 1 thread" in mine.get(f"/requests/{made.key}/edit/").content.decode()
    assert (
        mine.post(
            f"/requests/{made.key}/comment/", {"thread": wrote.pk, "text": "Enough."}
        ).status_code
        == 302
    )
    assert mine.post(f"/requests/{made.key}/comments/{wrote.pk}/resolve/").status_code == 302
    assert "0 open of 1" in mine.get(f"/requests/{made.key}/").content.decode()
    assert mine.post(f"/requests/{made.key}/comments/{wrote.pk}/reopen/").status_code == 302
    assert mine.post(f"/requests/{made.key}/comments/{wrote.pk}/withdraw/").status_code == 403
    assert (
        seen.post(f"/requests/{made.key}/comments/{wrote.pk}/edit/", {"text": "many"}).status_code
        == 302
    )
    assert seen.post(f"/requests/{made.key}/comments/{wrote.pk}/withdraw/").status_code == 302
    assert mine.get(f"/requests/{made.key}/comments/{wrote.pk}/edit/").status_code == 403
    assert "withdrawn</span>" in mine.get(f"/requests/{made.key}/").content.decode()


@pytest.mark.parametrize("sent", [{"text": ""}, {"field": "no", "text": "x"}, {"text": "x" * 6000}])
def test_problems_stand_in_the_form(sent, made, liaison, browse):
    answer = browse(liaison).post(f"/requests/{made.key}/comment/", sent)
    assert (answer.status_code, Comment.objects.count()) == (400, 0)
    assert "errorlist" in answer.content.decode()


def test_thread_of_another_request_is_not_found(made, nova, liaison, other_liaison, browse):
    wrote = write(made, liaison)
    other = draft(liaison, nova)
    assert (
        browse(liaison).get(f"/requests/{other.key}/comment/?thread={wrote.pk}").status_code == 404
    )
    assert (
        browse(liaison).post(f"/requests/{other.key}/comments/{wrote.pk}/resolve/").status_code
        == 404
    )
    assert browse(other_liaison).get(f"/requests/{made.key}/comment/").status_code == 404


def test_query_count_does_not_grow_with_comments(made, liaison, browse):
    client = browse(liaison)
    write(made, liaison)
    client.get(f"/requests/{made.key}/")
    with CaptureQueriesContext(
        connection,
    ) as few:
        client.get(f"/requests/{made.key}/")
    for number in range(20):
        write(made, liaison, at=AT + timedelta(hours=number))
    with CaptureQueriesContext(connection) as many:
        client.get(f"/requests/{made.key}/")
    assert len(many) == len(few)

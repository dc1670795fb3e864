"""Drafts that are saved as one types: what the form's script sends, and what it is told."""

from datetime import timedelta

import pytest
from django.utils import timezone

from apps.core.models import Event
from apps.production.domain.content.stages import content_of
from apps.production.domain.requests.drafts import save_draft
from apps.production.models import Request
from apps.production.web.forms.request import typed
from tests.factories.requests import AT, content, draft, request_in, stage

NEW = "/requests/new/"


def post_of(written, **more) -> dict:
    return dict(typed(written, **more).lists()) | {"do": "autosave"}


@pytest.fixture
def form(liaison, browse):
    return browse(liaison)


def test_first_save_of_a_new_form_makes_the_draft(nova, form):
    answer = form.post(NEW, post_of(content(title="half"), experiment="NOVA")).json()
    made = Request.objects.get()
    assert answer == {
        "saved": f"{timezone.localtime(AT):%H:%M}",
        "key": "NOVA-0001",
        "version": 1,
        "created": True,
        "url": "/requests/NOVA-0001/edit/",
    }
    again = form.post(answer["url"], post_of(content(title="whole"), version=1)).json()
    assert (again["version"], again["created"]) == (2, False)
    made.refresh_from_db()
    assert made.title == "whole"
    assert (
        form.post(answer["url"], post_of(content(title="whole"), version=2)).json()["version"] == 2
    )


KEY = "k" * 32


def test_form_that_is_sent_again_as_its_answer_was_lost_makes_no_second_draft(nova, form):
    sent = post_of(content(title="half"), experiment="NOVA", form_key=KEY)
    first = form.post(NEW, sent).json()
    assert form.post(NEW, sent).json() == first
    later = form.post(NEW, post_of(content(title="whole"), experiment="NOVA", form_key=KEY)).json()
    assert (later["key"], later["version"], later["created"]) == ("NOVA-0001", 2, True)
    button = post_of(content(title="whole"), experiment="NOVA", form_key=KEY) | {"do": "save"}
    assert (
        form.post(NEW, button)["Location"]
        == form.post(NEW, button)["Location"]
        == "/requests/NOVA-0001/edit/"
    )
    assert Request.objects.get().title == "whole"


def test_form_that_is_submitted_twice_is_one_request(nova, form):
    sent = post_of(content(), experiment="NOVA", form_key=KEY) | {"do": "submit"}
    form.post(NEW, sent)
    assert "NOVA-0001 is already submitted." in form.post(NEW, sent, follow=True).content.decode()
    assert Request.objects.get().state == "submitted"


def test_form_that_was_gone_back_to_after_a_button_makes_another_draft(nova, form):
    button = {"do": "save"}
    form.post(NEW, post_of(content(title="one"), experiment="NOVA", form_key=KEY) | button)
    form.post(NEW, post_of(content(title="two"), experiment="NOVA", form_key=KEY) | button)
    assert set(Request.objects.values_list("key", "title")) == {
        ("NOVA-0001", "one"),
        ("NOVA-0002", "two"),
    }


def test_form_that_is_sent_again_overwrites_nothing_of_others(nova, form, both):
    form.post(NEW, post_of(content(title="mine"), experiment="NOVA", form_key=KEY))
    save_draft(
        request=Request.objects.get(), content=content(title="theirs"), version=1, by=both, at=AT
    )
    sent = post_of(content(title="mine too"), experiment="NOVA", form_key=KEY)
    assert "was saved as NOVA-0001, which changed since" in form.post(NEW, sent).json()["conflict"]
    assert form.post(NEW, sent | {"do": "save"}).status_code == 409
    assert Request.objects.get().title == "theirs"


def test_key_is_of_its_author_and_new_on_each_page(nova, form, both, browse):
    keys = {form.get(NEW).context["main"]["form_key"].value() for _ in range(2)}
    assert [len(key) for key in keys] == [32, 32]
    sent = post_of(content(), experiment="NOVA", form_key=keys.pop())
    assert form.post(NEW, sent).json()["key"] != browse(both).post(NEW, sent).json()["key"]


def test_conflict_overwrites_nothing_and_says_so(nova, form, both, liaison):
    made = draft(liaison, nova)
    save_draft(request=made, content=content(title="theirs"), version=1, by=both, at=AT)
    answer = form.post(
        f"/requests/{made.key}/edit/", post_of(content(title="mine"), version=1)
    ).json()
    assert "was changed by two-hats in the meantime" in answer["conflict"]
    assert "Your input is kept here." in answer["conflict"]
    assert "saved" not in answer
    assert content_of(Request.objects.get()).title == "theirs"


def test_what_cannot_be_stored_yet_is_told_and_nothing_is_made(nova, form):
    sent = post_of(content(), experiment="NOVA") | {"stages-0-memory_bytes": "4 G or so"}
    assert form.post(NEW, sent).json()["problem"].startswith("Not saved yet. Stage 1 · Memory: ")
    large = post_of(content(stages=(stage(memory_bytes=17 * 10**12),)), experiment="NOVA")
    assert "Enter at most 16 TB." in form.post(NEW, large).json()["problem"]
    assert Request.objects.count() == 0


def test_submitted_meanwhile_is_a_conflict(nova, form, liaison, approver):
    sent = request_in("submitted", by=liaison, experiment=nova, approver=approver)
    answer = form.post(
        f"/requests/{sent.key}/edit/", post_of(content(title="late"), version=sent.version)
    ).json()
    assert "can no longer be edited" in answer["conflict"]


def test_others_may_not(nova, liaison, approver, browse):
    made = draft(liaison, nova)
    assert (
        browse(approver)
        .post(f"/requests/{made.key}/edit/", post_of(content(), version=1))
        .status_code
        == 403
    )


def save(made, by, title, minutes):
    at = AT + timedelta(minutes=minutes)
    made = Request.objects.get(pk=made.pk)
    save_draft(
        request=made, content=content(title=title), version=made.version, by=by, at=at, typing=True
    )


def test_saves_while_typing_are_one_event(nova, liaison, both):
    made = draft(liaison, nova)
    for number in range(5):
        save(made, liaison, f"t{number}", number)
    assert Event.objects.filter(kind="request.edited").count() == 1
    save(made, both, "other", 5)
    save(made, liaison, "again", 6)
    save(made, liaison, "later", 17)
    assert Event.objects.filter(kind="request.edited").count() == 4
    assert Request.objects.get().version == 9


def test_every_change_after_submission_is_an_event(nova, liaison, approver):
    asked = request_in("changes_requested", by=liaison, experiment=nova, approver=approver)
    for number in range(3):
        save(asked, liaison, f"t{number}", 120 + number)
    assert Event.objects.filter(kind="request.edited").count() == 3


@pytest.mark.parametrize("state", ["awaiting_approval", "queued"])
def test_what_is_signed_or_about_to_be_is_never_saved_by_typing(
    state, nova, form, liaison, approver
):
    signed = request_in(state, by=liaison, experiment=nova, approver=approver)
    answer = form.post(
        f"/requests/{signed.key}/edit/", post_of(content(title="typed"), version=signed.version)
    )
    assert "can no longer be edited" in answer.json()["conflict"]
    again = Request.objects.get()
    assert (again.state, again.title, again.version) == (state, content().title, signed.version)
    page = form.get(f"/requests/{signed.key}/edit/")
    assert "data-autosave" not in page.content.decode()

"""Hand-over notes of shifters, and what changed since the last one."""

from datetime import timedelta

import pytest
from django.utils import timezone

from apps.core.errors import InvalidFields, NotAllowed
from apps.core.models import Event
from apps.statusboard.domain.incidents.incidents import close_incident, open_incident
from apps.statusboard.domain.maintenance.hand_over_notes import (
    LONGEST_NOTE,
    hand_over_notes,
    write_hand_over_note,
)
from apps.statusboard.enums import State
from tests.factories import statusboard
from tests.pages import count_queries, text_of

PAGE = "/hand-over/"


def test_note_is_on_home_of_the_opg_and_in_the_history(browse, shifter, approver, liaison):
    client = browse(shifter)
    assert "write the first note" in text_of(client.get("/"))
    assert client.post(PAGE, {"text": "samweb <b>again</b>\nAsk okafor."}).url == PAGE
    client.post(PAGE, {"text": "Second note"})
    for user in (shifter, approver):
        home = text_of(browse(user).get("/"))
        assert "Second note" in home
        assert "samweb" not in home.partition('id="hand-over"')[2].partition("</section>")[0]
    page = text_of(browse(approver).get(PAGE))
    assert page.index("Second note") < page.index("samweb &lt;b&gt;again&lt;/b&gt;<br>Ask okafor.")
    assert [note.actor for note in hand_over_notes()] == [shifter.username] * 2

    assert 'id="hand-over"' not in text_of(browse(liaison).get("/"))
    assert browse(liaison).get(PAGE).status_code == 403
    assert browse(liaison).post(PAGE, {"text": "x"}).status_code == 403


def test_notes_are_read_and_written_by_the_api(api, shifter, approver, liaison):
    path = "/api/v1/hand-over-notes/"
    response = api(shifter).post(path, {"text": " samweb again "}, format="json")
    assert response.status_code == 201
    assert response.json()["text"] == "samweb again"
    [note] = api(approver).get(path).json()["results"]
    assert note == response.json()
    assert note["author"] == shifter.username
    assert api(shifter).post(path, {"text": " "}, format="json").status_code == 400
    assert api(liaison).get(path).status_code == 403
    assert api(liaison).post(path, {"text": "x"}, format="json").status_code == 403


def test_note_needs_a_text_and_a_role(browse, shifter, liaison):
    at = timezone.now()
    for text in (" \n", "x" * (LONGEST_NOTE + 1)):
        assert browse(shifter).post(PAGE, {"text": text}).status_code == 400
        with pytest.raises(InvalidFields):
            write_hand_over_note(text=text, by=shifter, at=at)
    with pytest.raises(NotAllowed):
        write_hand_over_note(text="x", by=liaison, at=at)
    assert not Event.objects.filter(kind="shift.handed_over").exists()


def test_page_shows_open_incidents_and_what_changed_since_the_last_note(browse, shifter):
    at = timezone.now()
    write_hand_over_note(text="Quiet.", by=shifter, at=at - timedelta(hours=8))
    before = count_queries(browse(shifter), PAGE)
    for name in ("samweb", "dcache"):
        service = statusboard.service(name, at - timedelta(days=3))
        since = at - timedelta(hours=1)
        options = {"state": State.DOWN, "title": "503", "by": shifter, "at": at}
        open_incident(service=service, started_at=since, **options)
        write_hand_over_note(text=name, by=shifter, at=at - timedelta(hours=2))
    page = text_of(browse(shifter).get(PAGE))
    assert "Since the last note" in page
    assert "samweb is down" in page
    assert 'Open incidents</h2><span class="count">2' in page
    assert count_queries(browse(shifter), PAGE) <= before + 1


def test_outages_reported_after_the_note_are_changes_since_it(browse, shifter):
    at = timezone.now()
    service = statusboard.service("samweb", at - timedelta(days=3))
    write_hand_over_note(text="Quiet.", by=shifter, at=at - timedelta(hours=1))
    options = {"state": State.DOWN, "title": "503", "by": shifter, "at": at}
    started_at = at - timedelta(hours=2)
    incident = open_incident(service=service, started_at=started_at, **options)
    assert "samweb is down, reported late" in text_of(browse(shifter).get(PAGE))
    ended_at = at - timedelta(minutes=90)
    close_incident(incident=incident, by=shifter, at=at, ended_at=ended_at, reason="It works.")
    page = text_of(browse(shifter).get(PAGE))
    assert "Outage of samweb ended, reported late" in page
    assert "samweb is down" not in page.partition('id="changes"')[2]
    write_hand_over_note(text="Over.", by=shifter, at=at + timedelta(seconds=1))
    assert "Nothing changed" in text_of(browse(shifter).get(PAGE))

"""The queue's pages: what each person sees and may do there, and what it costs."""

import re
from datetime import date, timedelta

import pytest
from django.db import connection
from django.template.loader import render_to_string
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone
from django.utils.html import strip_tags

from apps.production.domain.holds import place_hold
from apps.production.domain.lifecycle.moves import MOVE_FUNCTIONS
from apps.production.domain.priority.expected_start import Start
from apps.production.domain.priority.listing import queue_state
from apps.production.domain.priority.manual_moves import move_in_queue
from apps.production.domain.priority.ranks import ranked_requests
from apps.production.domain.priority.rescoring import rescore_all
from apps.production.enums import Verb
from apps.production.models import ExperimentShare, QueueEntry, Request
from apps.statusboard.domain.incidents.incidents import open_incident
from apps.statusboard.domain.maintenance.announcements import post_announcement
from apps.statusboard.enums import State
from tests.factories import people, statusboard
from tests.factories.queue import set_pace
from tests.factories.requests import AT, request_in, stage
from tests.pages import text_of

QUEUE = "/requests/queue/"


def post_move(client, request, **data):
    return client.post(reverse("production:queue-move", args=[request.key]), data, follow=True)


def test_liaison_sees_rank_terms_and_start_and_may_move_nothing(queued, liaison, browse):
    queued()
    page = browse(liaison).get(QUEUE).content.decode()
    for words in (
        "1st",
        "Class: not set",
        "Deadline in 22 d",
        "A point for each day fewer than 40",
        "unknown",
    ):
        assert words in page
    assert "Move…" not in page
    assert "Set priority…" not in page


def test_request_page_tells_rank_score_and_what_the_start_rests_on(queued, liaison, browse):
    one = queued()
    page = browse(liaison).get(one.get_absolute_url()).content.decode()
    for words in (
        "1st</b> of 1 in the queue",
        "Expected start",
        "Unknown until jobs of requests have ended on 5 days",
        "2 points for each",
        "Score",
    ):
        assert words in page


def test_start_after_the_deadline_is_late_even_if_the_end_is_unknown(queued, approver, browse):
    set_pace(5)
    _, second = queued(), queued()
    QueueEntry.objects.update(core_seconds=72 * 3600)
    start = browse(approver).get(QUEUE).context["part"].rows[1].start.likely
    own_page = second.get_absolute_url()
    for days, shown in ((-1, "■ ≥ 1 d late</span>"), (0, "end unknown</span>")):
        Request.objects.filter(pk=second.pk).update(deadline=start + timedelta(days))
        response = browse(approver).get(QUEUE)
        slack = response.context["part"].rows[1].slack
        assert (slack is not None and slack.is_late) == (days < 0)
        assert shown in text_of(response).partition(f'id="{second.key}"')[2]
        page = text_of(browse(approver).get(own_page))
        assert ("Starts 1 day after its deadline" in page) == (days < 0)


def test_dates_of_another_year_have_their_year(queued, approver, browse):
    one = queued()
    Request.objects.filter(pk=one.pk).update(deadline=date(2051, 2, 3))
    assert "due 3 Feb 2051" in browse(approver).get(QUEUE).text
    start = Start(date(2051, 1, 4), date(2051, 1, 5), date(2051, 1, 6))
    shown = strip_tags(render_to_string("production/queue/_start.html", {"start": start}))
    assert " ".join(shown.split()) == "5 Jan 2051 4 Jan – 6 Jan"
    certain = Start(date(2051, 1, 5), date(2051, 1, 5), date(2051, 1, 5))
    shown = strip_tags(render_to_string("production/queue/_start.html", {"start": certain}))
    assert shown.strip() == "5 Jan 2051"


def test_held_one_is_marked_and_has_no_start(queued, nova, approver, shifter, browse):
    held, other = queued(), queued()
    MOVE_FUNCTIONS[Verb.HOLD](request=held, by=approver, at=AT, reason="memory")
    page = browse(shifter).get(QUEUE)
    rows = {row.request.key: row for row in page.context["part"].rows}
    assert rows[held.key].rank == 1
    assert rows[held.key].start.basis == "Unknown while it is on hold."
    assert "keeps its position, but does not start" in page.content.decode()
    place_hold(by=shifter, at=AT, reason="full", experiment=nova)
    page = browse(shifter).get(QUEUE)
    assert page.context["part"].rows[1].start.basis == "Unknown while NOvA is on hold."
    assert page.content.decode().count("keeps its position, but does not start") == 2
    assert "NOvA is on hold: keeps its position" in page.content.decode()
    assert other.key in browse(shifter).get(other.get_absolute_url()).content.decode()


def test_service_that_is_down_is_named_once_with_the_requests_that_need_it(
    queued, approver, browse
):
    samweb = statusboard.service("samweb", people.LONG_AGO)
    needing = [queued(stages=(stage(services=("samweb",)),)) for _ in range(2)]
    queued()
    open_incident(service=samweb, state=State.DOWN, title="503", by=approver, at=AT)
    page = browse(approver).get(QUEUE)
    assert dict(page.context["hindrances"].down) == {samweb: 2}
    assert set(page.context["hindrances"].reasons) == {request.pk for request in needing}
    words = " ".join(strip_tags(page.content.decode()).split())
    assert "2 of 3 need samweb, which is down" in words

    post_announcement(title="Power cut", by=approver, at=AT, do_not_submit=True)
    words = " ".join(strip_tags(browse(approver).get(QUEUE).content.decode()).split())
    assert "“Power cut” concerns 3 of 3." in words


@pytest.mark.parametrize("kind", ["move", "priority"])
def test_effect_is_previewed_before_the_change_is_offered_first(kind, queued, approver, browse):
    first, second = queued(), queued()
    client = browse(approver)
    address = reverse(f"production:queue-{kind}", args=[second.key])
    buttons = re.compile(r'<button class="button( main)?"[^>]*>([^<]+)</button>')
    change = {"move": "Move", "priority": "Set priority"}[kind]

    form = client.get(QUEUE).content.decode().partition(f'action="{address}"')[2]
    assert buttons.findall(form)[:2] == [(" main", "Preview"), ("", change)]
    sent = {"to_rank": 1, "priority_class": "high", "reason": "", "do": "preview"}
    page = client.post(address, sent).content.decode()
    form = page.partition(f'action="{address}"')[2]
    assert "Nothing is saved yet." in form.partition("</form>")[0]
    preview = form.partition('<ul class="preview">')[2].partition("</ul>")[0]
    rows = preview.split("<li")[1:]
    assert len(rows) == 2
    for row in rows:
        # The cells stand below each other: each row has all of them.
        assert [row.count(f"{name} ") for name in ("start", "end")] == [1, 1], row
    assert buttons.findall(form)[:2] == [(" main", change), ("", "Preview")]
    assert [request.key for request in ranked_requests()] == [first.key, second.key]


def test_preview_has_the_slack_before_and_after(queued, approver, browse):
    first, second = queued(), queued()
    QueueEntry.objects.update(core_seconds=72 * 3600, days_low=1, days=1, days_high=1)
    set_pace(5)
    today = timezone.localdate()
    Request.objects.filter(pk=first.pk).update(deadline=today + timedelta(days=1))
    address = reverse("production:queue-move", args=[second.key])
    page = browse(approver).post(address, {"to_rank": 1, "reason": "", "do": "preview"})
    preview = page.text.partition('<ul class="preview">')[2].partition("</ul>")[0]
    row = " ".join(strip_tags(preview.partition(f">{first.key}<")[2]).split())
    assert re.search(r"\d+ d → ■ \d+ d late", row)


def test_move_by_the_form_is_told_on_both_pages(queued, approver, liaison, browse):
    first, second = queued(), queued()
    data = {
        "to_rank": 1,
        "reason": "<b>freeze</b>",
        "version": queue_state().version,
        "seen_rank": 2,
    }
    page = post_move(browse(approver), second, **data).content.decode()
    assert "NOVA-0002 moved from rank 2 to 1." in page
    for url in (QUEUE, second.get_absolute_url()):
        shown = browse(liaison).get(url).content.decode()
        assert "opg-one" in shown
        assert "2nd → 1st in the queue" in shown
        assert "&lt;b&gt;freeze" in shown
    assert [request.key for request in ranked_requests()] == [second.key, first.key]
    undo = reverse("production:queue-undo", args=[second.key])
    assert (
        "was not moved. "
        in browse(approver).post(undo, {"reason": ""}, follow=True).content.decode()
    )
    again = browse(approver).post(undo, {"reason": "no freeze"}, follow=True).content.decode()
    assert "Reset the position of NOVA-0002. It has rank 2." in again
    assert "reset the position of" in again


def test_problems_of_a_move_stand_in_its_row_with_what_was_typed(queued, approver, browse):
    one = queued()
    for data, words in (
        ({"to_rank": "x", "reason": "why not"}, "Enter a whole number"),
        ({"to_rank": 7, "reason": "why not"}, "Enter a rank from 1 to 1."),
        ({"to_rank": 1, "reason": "why not"}, "It already has rank 1."),
    ):
        page = post_move(browse(approver), one, **data)
        assert page.status_code == 400
        assert words in page.content.decode()
        assert 'value="why not"' in page.content.decode()


def test_second_of_two_is_told_on_the_page(queued, approver, second_approver, browse):
    queued(), queued(), queued()
    one, _, three = ranked_requests()
    seen = queue_state().version
    post_move(browse(approver), three, to_rank=1, reason="x", version=seen)
    page = post_move(
        browse(second_approver), one, to_rank=3, reason="y", version=seen
    ).content.decode()
    assert (
        "opg-one changed the queue in the meantime: NOVA-0003 was moved from rank 3 to 1." in page
    )


def test_others_learn_of_a_move_but_not_of_whose_and_why(
    queued, dune, other_liaison, approver, browse
):
    queued(), queued()
    request_in("queued", by=other_liaison, experiment=dune, approver=approver)
    move_in_queue(
        request=list(ranked_requests())[1], to_rank=1, by=approver, at=AT, reason="secret freeze"
    )
    page = browse(other_liaison).get(QUEUE).content.decode()
    assert "a request of another experiment" in page
    assert "secret" not in page
    assert "NOVA-" not in page


def test_what_setting_each_class_would_give_is_told_beside_the_form(queued, approver, browse):
    queued(), queued()
    last = list(ranked_requests())[-1]
    page = browse(approver).get(f"{last.get_absolute_url()}?do=priority").content.decode()
    assert "urgent: <b>1st</b>" in page
    assert "low: <b>2nd</b>" in page


@pytest.mark.parametrize("who", ["approver", "liaison"])
def test_queue_costs_the_same_queries_however_long_it_is(who, queued, browse, request):
    user = request.getfixturevalue(who)
    client = browse(user)

    def cost(url) -> int:
        client.get(url)
        with CaptureQueriesContext(
            connection,
        ) as asked:
            assert client.get(url).status_code == 200
        return len(asked)

    one = queued()
    urls = [QUEUE, one.get_absolute_url(), reverse("api:queue-list")]
    before = [cost(url) for url in urls]
    for _ in range(4):
        queued()
    assert [cost(url) for url in urls] == before


def test_shares_are_previewed_then_saved(queued, nova, dune, approver, shifter, browse):
    queued()
    url, client = reverse("production:shares"), browse(approver)
    data = {
        "share-NOVA": 300,
        "share-DUNE": 100,
        "reason": "",
        "version": queue_state().version,
        "do": "preview",
    }
    page = client.post(url, data).content.decode()
    assert "nothing is saved yet" in page
    assert "75 %" in page
    assert not ExperimentShare.objects.exists()
    missing = client.post(url, {**data, "do": "save"})
    assert (missing.status_code, "Enter a reason." in missing.content.decode()) == (400, True)
    none = client.post(url, {**data, "share-NOVA": 0, "share-DUNE": 0})
    assert (none.status_code, "At least one experiment" in none.content.decode()) == (400, True)
    assert client.post(url, {**data, "do": "save", "reason": "agreed"}).status_code == 302
    stale = client.post(url, {**data, "do": "save", "reason": "late"})
    assert (
        stale.status_code,
        "opg-one changed the queue in the meantime" in stale.content.decode(),
    ) == (400, True)
    seen = browse(shifter).get(url).content.decode()
    assert "75 %" in seen
    assert 'name="share-NOVA"' not in seen
    assert browse(shifter).post(url, data).status_code == 403
    assert "set the share of NOvA: 50 % → 75 %" in client.get(QUEUE).content.decode()


def test_weight_of_zero_is_saved_with_a_warning(nova, dune, admin, browse):
    client = browse(admin)
    warning = "NOvA has a weight of 0. This stops nothing"
    shares = {"share-NOVA": 0, "share-DUNE": 100, "version": queue_state().version}
    address = reverse("production:shares")
    assert warning in client.post(address, {**shares, "do": "preview"}).text
    saved = client.post(address, {**shares, "do": "save", "reason": "ended"}, follow=True)
    assert warning in saved.text
    change = f"/admin/production/experimentshare/{nova.pk}/change/"
    assert warning not in client.post(change, {"weight": 9, "reason": "back"}, follow=True).text
    assert warning in client.post(change, {"weight": 0, "reason": "ended"}, follow=True).text


def test_back_office_sets_a_share_by_the_service(nova, admin, browse):
    add = "/admin/production/experimentshare/add/"
    client = browse(admin)
    assert client.post(add, {"experiment": nova.pk, "weight": 0, "reason": "x"}).status_code == 200
    assert (
        client.post(add, {"experiment": nova.pk, "weight": 250, "reason": "agreed"}).status_code
        == 302
    )
    share = ExperimentShare.objects.get()
    assert (share.weight, share.by) == (250, "admin-one")
    change = f"/admin/production/experimentshare/{nova.pk}/change/"
    assert client.post(change, {"weight": 300, "reason": "more"}).status_code == 302
    assert ExperimentShare.objects.get().weight == 300
    for name in ("queueentry", "queuestate", "shareuse", "approvalgroup"):
        assert client.get(f"/admin/production/{name}/").status_code == 200


def test_api_reads_moves_and_tries_out(queued, approver, liaison, api):
    one, two = queued(), queued()
    rescore_all(at=AT)
    listed = api(liaison).get("/api/v1/queue/").json()
    assert [(row["rank"], row["key"]) for row in listed["results"]] == [(1, one.key), (2, two.key)]
    assert listed["results"][0]["score"] == pytest.approx(
        sum(t["points"] for t in listed["results"][0]["terms"])
    )
    part = api(liaison).get("/api/v1/queue/?page_size=1").json()
    assert (part["next_after"], part["total"]) == (1, 2)
    path = f"/api/v1/queue/{two.key}/"
    sent = {"to_rank": 1, "reason": "freeze", "version": listed["version"], "seen_rank": 2}
    assert api(liaison).post(f"{path}move/", sent, format="json").status_code == 403
    moved = api(approver).post(f"{path}move/", sent, format="json").json()
    assert (moved["rank"], moved["is_moved"], moved["terms"][-1]["key"]) == (1, True, "hand")
    assert api(approver).post(f"{path}move/", sent, format="json").status_code == 409
    assert (
        api(approver).post(f"{path}move/", {"to_rank": 9, "reason": ""}, format="json").status_code
        == 400
    )
    then = api(liaison).get(f"{path}what-if/?priority_class=low").json()
    assert then == {"rank": 1, "rank_then": 2}
    assert (
        api(approver).post(f"{path}undo-move/", {"reason": "x"}, format="json").json()["rank"] == 2
    )
    assert api(liaison).get("/api/v1/queue/?after=x").status_code == 400


def test_api_reads_and_sets_shares(queued, nova, dune, approver, liaison, api):
    queued()
    assert api(liaison).get("/api/v1/shares/").status_code == 403
    now = api(approver).get("/api/v1/shares/").json()
    assert {row["experiment"]: row["weight"] for row in now["shares"]} == {"NOVA": 100, "DUNE": 100}
    then = (
        api(approver)
        .post("/api/v1/shares/what-if/", {"weights": {"NOVA": 300}}, format="json")
        .json()
    )
    assert {row["experiment"]: row["share"] for row in then["shares"]} == {
        "NOVA": 0.75,
        "DUNE": 0.25,
    }
    sent = {"weights": {"NOVA": 300}, "reason": "agreed", "version": now["version"]}
    assert (
        api(approver)
        .put("/api/v1/shares/", {**sent, "weights": {"X": 1}}, format="json")
        .status_code
        == 400
    )
    assert (
        api(approver).put("/api/v1/shares/", sent, format="json").json()["version"]
        == now["version"] + 1
    )
    assert api(approver).put("/api/v1/shares/", sent, format="json").status_code == 409


def test_queue_says_how_much_work_in_production_comes_before_it(
    queued, nova, liaison, approver, browse
):
    queued()
    set_pace(24)
    client = browse(approver)
    assert "in production with" not in text_of(client.get(QUEUE))
    request_in("running", by=liaison, experiment=nova, approver=approver, title="Ahead")
    rescore_all(at=AT)
    QueueEntry.objects.filter(is_queued=False).update(core_seconds=48 * 3600.0)
    text = " ".join(re.sub(r"<[^>]*>", "", client.get(QUEUE).text).split())
    assert "Ahead of the queue is 1 request in production with 48 core-hours to go." in text


@pytest.mark.parametrize("name", ["queue", "shares", "holds"])
def test_shares_and_holds_are_below_the_tab_of_the_queue(name, approver, browse):
    page = browse(approver).get(reverse(f"production:{name}")).text
    assert '<a href="/requests/queue/" aria-current="page">Queue</a>' in page

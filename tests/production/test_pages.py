"""Pages of requests: who sees what, what each button does, and what happens to hostile text."""

import csv
import re

import pytest
from django.db import connection
from django.urls import reverse

from apps.core.domain.events import events_of
from apps.core.models import Event
from apps.production import filters
from apps.production.domain.lifecycle.moves import MOVE_FUNCTIONS, check_request, submit_request
from apps.production.domain.lifecycle.transitions import actor_of
from apps.production.domain.priority.free_clusters import (
    FreeCluster,
    Room,
    store_free_clusters,
)
from apps.production.domain.requests.drafts import save_draft
from apps.production.enums import Actor, RequestState, Verb
from apps.production.models import QueueEntry, QueueState, Request
from apps.production.web.templatetags.requests import changed_fields
from tests.factories.requests import AT, draft, request_in, stage

HOSTILE = "<script>alert(1)</script>"


def detail(request: Request, query: str = "") -> str:
    return reverse("portal:request", args=[request.key]) + query


def move(request: Request, verb: str) -> str:
    return reverse("portal:request-move", args=[request.key, verb])


@pytest.mark.parametrize("state", RequestState.values)
def test_detail_shows_state_to_all_who_may_see_it(
    state, nova, liaison, approver, shifter, admin, browse
):
    obj = request_in(state, by=liaison, experiment=nova, approver=approver)
    for user in (liaison, approver, shifter, admin):
        page = browse(user).get(detail(obj))
        assert page.status_code == 200
        assert re.search(f">{obj.get_state_display()}</(span|small)>", page.content.decode())


@pytest.mark.parametrize("path", ["", "edit/"])
def test_request_of_another_experiment_is_not_found(path, nova, liaison, other_liaison, browse):
    obj = draft(liaison, nova)
    assert browse(other_liaison).get(detail(obj) + path).status_code == 404
    assert browse(other_liaison).post(move(obj, "submit")).status_code == 404


def test_other_liaison_sees_nothing_of_it_in_list_and_queue(
    nova, liaison, approver, other_liaison, browse
):
    obj = request_in("queued", by=liaison, experiment=nova, approver=approver)
    for name in ("production:request-list", "production:queue"):
        assert obj.key not in browse(other_liaison).get(reverse(name)).content.decode()


@pytest.mark.parametrize(
    ("state", "role", "offered"),
    [
        ("draft", "liaison", ["cancel", "submit"]),
        ("draft", "approver", []),
        ("awaiting_approval", "liaison", ["cancel", "supersede"]),
        (
            "awaiting_approval",
            "approver",
            ["approve", "request-changes", "reject", "cancel", "supersede", "priority"],
        ),
        ("awaiting_approval", "shifter", []),
        ("changes_requested", "liaison", ["cancel", "supersede", "submit"]),
        ("queued", "approver", ["test", "start", "hold", "cancel", "supersede", "priority"]),
        ("on_hold", "shifter", ["release"]),
        ("data_quality", "shifter", ["resume"]),
        ("queued", "liaison", ["cancel", "supersede"]),
        ("done", "approver", ["supersede"]),
    ],
)
def test_detail_offers_only_what_this_person_may_do_now(
    state, role, offered, nova, liaison, approver, browse, request
):
    obj = request_in(state, by=liaison, experiment=nova, approver=approver)
    page = browse(request.getfixturevalue(role)).get(detail(obj)).content.decode()
    # One approves at the desk.
    page = page.replace(
        f'href="{reverse("production:desk")}?at={obj.key}"', 'href="?do=approve#do"'
    )
    every = [*MOVE_FUNCTIONS, "priority"]
    assert {verb for verb in every if f'href="?do={verb}#do"' in page} == set(offered)


def test_form_of_a_move_that_is_not_possible_is_not_shown(nova, liaison, browse):
    obj = draft(liaison, nova)
    assert 'id="do"' not in browse(liaison).get(detail(obj, "?do=approve")).content.decode()


def test_approve_moves_and_says_so(nova, liaison, approver, browse):
    obj = request_in("awaiting_approval", by=liaison, experiment=nova, approver=approver)
    page = browse(approver).post(
        move(obj, "approve"), {"version": obj.version, "reason": "good"}, follow=True
    )
    assert "NOVA-0001 is approved as normal, 1st of 1 in the queue." in page.content.decode()
    assert Request.objects.get().approved_by == approver


def test_message_of_an_approval_names_the_cluster_that_starts_the_request(
    nova, liaison, approver, browse
):
    store_free_clusters([FreeCluster("alps", Room(jobs=10, of_others=10))])
    obj = request_in("awaiting_approval", by=liaison, experiment=nova, approver=approver)
    page = browse(approver).post(
        move(obj, "approve"), {"version": obj.version, "reason": "good"}, follow=True
    )
    message = "NOVA-0001 is approved as normal. alps has room for it and starts it within minutes."
    assert QueueEntry.objects.get().starts_on == "alps", "no page counts it as waiting"
    assert QueueState.objects.get().free_clusters[0]["room"]["jobs"] == 9
    assert message in page.content.decode()


def test_draft_names_what_keeps_it_from_being_submitted(nova, liaison, browse):
    obj = draft(liaison, nova, purpose="")
    page = " ".join(browse(liaison).get(detail(obj)).content.decode().split())
    assert "1 problem keeps it from being submitted:" in page
    assert "<li>Enter the purpose" in page
    complete = draft(liaison, nova)
    page = browse(liaison).get(detail(complete)).content.decode()
    assert "Nothing is missing: the checks let it be submitted." in page


@pytest.mark.parametrize(
    ("stored", "shown"), [("2026-12-05", "5 Dec 2026"), ("2026-13-05", "2026-13-05"), ("", "")]
)
def test_dates_of_the_activity_are_shown_as_elsewhere(stored, shown):
    change = {"path": "deadline", "old": stored, "new": "2026-12-31"}
    [row] = changed_fields(Event(data={"changes": [change]}))
    assert (row["place"], row["old"], row["new"]) == ("deadline", shown, "31 Dec 2026")


def test_comment_with_a_proposal_says_who_decides(nova, liaison, approver, browse):
    obj = request_in("queued", by=liaison, experiment=nova, approver=approver)
    url = f"{reverse('production:comment', args=[obj.key])}?about=stages.0.memory_bytes"
    client = browse(approver)
    assert "This is a proposal" not in client.get(url).content.decode()
    page = " ".join(client.get(f"{url}&text=I+propose+4+GB.").content.decode().split())
    assert "The liaisons of NOvA decide" in page
    Request.objects.filter(pk=obj.pk).update(state="running")
    page = " ".join(client.get(f"{url}&text=I+propose+4+GB.").content.decode().split())
    assert "approvers and shifters decide whether to retry its jobs with the new value" in page


def test_reject_without_reason_says_so_beside_the_field(nova, liaison, approver, browse):
    obj = request_in("awaiting_approval", by=liaison, experiment=nova, approver=approver)
    page = browse(approver).post(move(obj, "reject"), {"version": obj.version, "reason": "  "})
    assert page.status_code == 400
    assert "Enter a reason." in page.content.decode()
    assert page.context["form"].fields["reason"].widget.attrs["autofocus"]


def test_requester_who_is_approver_too_is_forbidden_to_approve(nova, both, browse):
    obj = submit_request(request=draft(both, nova), by=both, at=AT)
    check_request(request=obj, at=AT)
    assert browse(both).post(move(obj, "approve")).status_code == 403
    assert Request.objects.get().state == "awaiting_approval"


@pytest.mark.parametrize(
    "verb",
    [
        verb
        for verb in MOVE_FUNCTIONS
        if actor_of(verb) not in {Actor.OPERATOR, Actor.OPERATOR_OR_PORTAL}
    ],
)
def test_shifter_is_forbidden_every_move(verb, nova, liaison, approver, shifter, browse):
    obj = request_in("awaiting_approval", by=liaison, experiment=nova, approver=approver)
    assert browse(shifter).post(move(obj, verb), {"reason": "x"}).status_code == 403


def test_unknown_move_is_not_found_and_moves_are_posts(nova, liaison, browse):
    obj = draft(liaison, nova)
    assert browse(liaison).post(move(obj, "explode")).status_code == 404
    back = browse(liaison).get(move(obj, "submit"))
    assert (back.status_code, back.url) == (303, obj.get_absolute_url())


def test_second_approver_is_told_what_the_first_did(
    nova, liaison, approver, second_approver, browse
):
    obj = request_in("awaiting_approval", by=liaison, experiment=nova, approver=approver)
    MOVE_FUNCTIONS[Verb.REQUEST_CHANGES](request=obj, by=approver, at=AT, reason="no")
    page = browse(second_approver).post(
        move(obj, "approve"), {"version": obj.version - 1}, follow=True
    )
    assert (
        "NOVA-0001 was changed by opg-one in the meantime and is now “changes requested”. "
        "Your change was not saved."
    ) in (page.content.decode())


def test_submit_of_an_incomplete_draft_leads_to_its_problems(nova, liaison, browse):
    obj = draft(liaison, nova, title="", deadline=None)
    page = browse(liaison).post(move(obj, "submit"), follow=True).content.decode()
    assert '<a class="problem" href="#id_title">' in page
    assert '<a href="#id_deadline">Deadline</a>' in page
    assert page.count("Choose a deadline.") == 2


def test_priority_is_set_and_told_in_the_history_of_the_queue(nova, liaison, approver, browse):
    first = request_in("queued", by=liaison, experiment=nova, approver=approver)
    second = request_in("queued", by=liaison, experiment=nova, approver=approver, title="The other")
    path = reverse("portal:request-priority", args=[second.key])
    browse(approver).post(path, {"priority": 7, "reason": "freeze", "version": second.version})
    page = browse(approver).get(reverse("production:queue"))
    assert [row.request.key for row in page.context["part"].rows] == [second.key, first.key]
    assert "2nd → 1st in the queue: “freeze”" in page.content.decode()


def test_priority_with_garbage_is_shown_beside_its_field(nova, liaison, approver, browse):
    obj = request_in("queued", by=liaison, experiment=nova, approver=approver)
    path = reverse("portal:request-priority", args=[obj.key])
    page = browse(approver).post(path, {"priority": "100000", "reason": ""})
    assert page.status_code == 400
    assert "Enter 9 or less" in page.content.decode()
    assert browse(liaison).post(path, {"priority": 5, "reason": "x"}).status_code == 403


def test_hostile_text_is_escaped_on_every_page(nova, liaison, approver, browse):
    obj = request_in(
        "awaiting_approval",
        by=liaison,
        experiment=nova,
        approver=approver,
        title=HOSTILE,
        purpose=HOSTILE,
        requested_priority="high",
        priority_reason=HOSTILE,
        stages=(stage(),),
    )
    # No such name is let through by the checks; a page must not rest on that.
    obj.stages.update(release=HOSTILE, configuration=HOSTILE, input_dataset=HOSTILE)
    MOVE_FUNCTIONS[Verb.REQUEST_CHANGES](request=obj, by=approver, at=AT, reason=HOSTILE)
    paths = [
        detail(obj),
        detail(obj) + "edit/",
        reverse("production:request-list"),
        reverse("portal:home"),
    ]
    for path in paths:
        assert HOSTILE not in browse(liaison).get(path).content.decode()


def test_list_filters_by_what_its_address_says(
    nova, dune, liaison, other_liaison, approver, shifter, browse
):
    request_in("awaiting_approval", by=liaison, experiment=nova, approver=approver)
    draft(other_liaison, dune, title="Something of beam tests")
    found = {}
    for query in (
        "",
        "?state=draft",
        "?experiment=NOVA",
        "?text=beam+tests",
        "?text=dune-0",
        "?mine=yes",
        "?state=x",
    ):
        page = browse(shifter).get(reverse("production:request-list") + query)
        found[query] = [row.key for row in page.context["page"].rows]
    assert found == {
        "": ["DUNE-0001", "NOVA-0001"],
        "?state=draft": ["DUNE-0001"],
        "?experiment=NOVA": ["NOVA-0001"],
        "?text=beam+tests": ["DUNE-0001"],
        "?text=dune-0": ["DUNE-0001"],
        "?mine=yes": [],
        "?state=x": [],
    }
    both = "?state=draft&state=awaiting_approval"
    for query, keys in {
        both + "&sort=title": ["NOVA-0001", "DUNE-0001"],
        both + "&sort=-title": ["DUNE-0001", "NOVA-0001"],
        both + "&type=keep_up": [],
        f"?requester={liaison.username}&priority=normal": ["NOVA-0001"],
        "?due_to=2020-01-01": [],
        "?sort=-nothing": ["DUNE-0001", "NOVA-0001"],
    }.items():
        page = browse(shifter).get(reverse("production:request-list") + query)
        assert [row.key for row in page.context["page"].rows] == keys, query
    mine = (
        browse(approver).get(reverse("production:request-list") + "?mine=turn").context["page"].rows
    )
    assert [row.key for row in mine] == ["NOVA-0001"]


def test_list_has_the_requests_that_a_user_decided(
    nova, dune, liaison, approver, second_approver, browse
):
    states = ("awaiting_approval", "changes_requested", "rejected", "queued")
    decided = set()
    for state in states:
        made = request_in(state, by=liaison, experiment=nova, approver=approver)
        if state != "awaiting_approval":
            decided.add(made.key)
    for user, expected in ((approver, decided), (second_approver, set()), (liaison, set())):
        page = browse(user).get(reverse("production:request-list") + "?mine=decided")
        assert {row.key for row in page.context["page"].rows} == expected
        answer = browse(user).get("/api/v1/requests/?mine=decided").json()
        assert {row["key"] for row in answer["results"]} == expected


@pytest.mark.parametrize("few", [0, 1000])
def test_list_finds_words_by_their_indexes_and_many_matches_in_its_own_order(
    nova, liaison, browse, monkeypatch, few
):
    monkeypatch.setattr(filters, "_FEW", few)
    for title in ("Cosmic muons", "Muon veto", "Beam"):
        draft(liaison, nova, title=title)
    page = browse(liaison).get("/requests/?text=MUON").content.decode()
    assert [key in page for key in ("NOVA-0001", "NOVA-0002", "NOVA-0003")] == [True, True, False]
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_indexscan = off")
    for column, index in (("key", "request_words_of_key"), ("title", "request_words_of_title")):
        assert (
            index in Request.objects.order_by().filter(**{f"{column}__icontains": "muon"}).explain()
        )


def test_list_is_a_file_for_spreadsheets(nova, liaison, other_liaison, dune, browse):
    draft(liaison, nova, title='=1+1, and a "quote"')
    draft(other_liaison, dune)
    answer = browse(liaison).get(reverse("production:request-list") + "?format=csv&state=draft")
    rows = list(csv.DictReader(b"".join(answer).decode().splitlines()))
    assert [(row["Request"], row["Title"], row["Deadline"]) for row in rows] == [
        ("NOVA-0001", '\'=1+1, and a "quote"', "2026-12-12")
    ]
    assert 'filename="requests.csv"' in answer["Content-Disposition"]


@pytest.mark.parametrize(
    "name",
    ["production:request-list", "production:queue", "portal:request", "production:request-edit"],
)
def test_page_queries_do_not_grow_with_rows(
    name,
    nova,
    liaison,
    approver,
    samweb,
    browse,
    django_assert_num_queries,
    django_assert_max_num_queries,
):
    client, counts = browse(liaison), []
    # The page shows what progress, quality, recovery, notifications and services know, and computes
    # dates that no worker has stored yet; the form shows the queue in each class.
    most = {"portal:request": 60, "production:request-edit": 29}.get(name, 25)
    for rows in (1, 3):
        for _ in range(rows - Request.objects.count()):
            state = "draft" if name == "production:request-edit" else "queued"
            chain = tuple(stage(f"s{i}", services=("samweb",)) for i in range(rows))
            obj = request_in(state, by=liaison, experiment=nova, approver=approver, stages=chain)
        path = reverse(
            name, args=[] if name in {"production:request-list", "production:queue"} else [obj.key]
        )
        client.get(path)
        with django_assert_max_num_queries(most) as seen:
            assert client.get(path).status_code == 200
        counts.append(len(seen))
    assert counts[0] == counts[1]


def test_empty_pages_say_what_to_do(nova, liaison, shifter, browse):
    assert (
        "Create the first request"
        in browse(liaison).get(reverse("production:request-list")).content.decode()
    )
    assert "The queue is empty" in browse(shifter).get(reverse("production:queue")).content.decode()
    assert not Event.objects.filter(kind="request.created").exists()


def test_detail_names_needed_service_with_its_state(nova, liaison, samweb, browse):
    obj = draft(liaison, nova, stages=(stage(services=("samweb",)),))
    page = browse(liaison).get(detail(obj)).content.decode()
    assert '<a href="/services/samweb/">SAM web</a>' in page
    assert '<b class="s-unknown">unknown</b>' in page


def test_edited_fields_are_named_in_the_timeline(nova, liaison, browse):
    obj = draft(liaison, nova, stages=(stage(release="v09_70"),))
    from tests.factories.requests import content

    save_draft(
        request=obj,
        content=content(stages=(stage(release="v09_72"),)),
        version=obj.version,
        by=liaison,
        at=AT,
    )
    page = browse(liaison).get(detail(obj)).content.decode()
    assert 'stage 1 › release: <span class="mono">v09_70 → v09_72</span>' in page
    assert events_of(obj).last().data["count"] == 1

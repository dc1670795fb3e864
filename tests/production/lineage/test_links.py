"""Splitting and combining: who may, when, what becomes of the old ones,
and what the pages and the API show.
"""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.clusters.schedulers.base import CurrentJobs, CurrentState
from apps.core.domain.events import events_of
from apps.core.errors import InvalidFields, InvalidTransition, NotAllowed, StaleState
from apps.jobs.domain.collection.origin import attach_origin
from apps.jobs.domain.live.queue import Origin, store_queue
from apps.production.domain.content.stages import content_of
from apps.production.domain.lifecycle.moves import (
    MOVE_FUNCTIONS,
    approve_request,
    check_request,
    set_priority,
    submit_request,
)
from apps.production.domain.lineage import links
from apps.production.domain.lineage.splits import SplitUnit
from apps.production.domain.outputs.counts import report_output
from apps.production.domain.requests.drafts import create_draft
from apps.production.domain.types.versions import newest_version, workflow_of
from apps.production.enums import BEFORE_PRODUCTION, RequestState
from apps.production.models import Request, RequestLink
from tests.factories import clusters
from tests.factories.jobs import record, store
from tests.factories.requests import AT, content, draft, request_in, stage
from tests.factories.workflows import monte_carlo
from tests.production.lineage.test_splits import sums

SENT = [state for state in RequestState if state not in BEFORE_PRODUCTION]


def split(request, by, size=8_000_000, **more):
    wanted = Request.objects.get(pk=request.pk)
    return links.split_request(
        request=wanted,
        by_what=SplitUnit.EVENTS,
        size=size,
        **{"by": by, "at": AT, "reason": "too large", **more},
    )


def combine(requests, by, **more):
    rows = [Request.objects.get(pk=request.pk) for request in requests]
    return links.combine_requests(
        requests=rows, **{"by": by, "at": AT, "reason": "one is enough", **more}
    )


@pytest.fixture
def queued(nova, liaison, approver):
    return request_in("queued", by=liaison, experiment=nova, approver=approver)


@pytest.mark.parametrize("state", sorted(BEFORE_PRODUCTION))
def test_parts_are_drafts_and_the_whole_gives_way(state, nova, liaison, approver):
    whole = request_in(state, by=liaison, experiment=nova, approver=approver)

    made = split(whole, liaison)

    assert [(part.key, part.state, part.created_by) for part in made] == [
        (f"NOVA-000{number}", "draft", liaison) for number in (2, 3, 4)
    ]
    assert sums([content_of(part) for part in made]) == sums([content_of(whole)])
    gone = Request.objects.get(pk=whole.pk)
    assert gone.state == ("cancelled" if state == "draft" else "superseded")
    assert gone.superseded_by == (None if state == "draft" else made[0])
    last = events_of(gone).last()
    assert (last.reason, last.data["split_into"]) == (
        "too large",
        ["NOVA-0002", "NOVA-0003", "NOVA-0004"],
    )
    began = events_of(made[2]).get()
    assert began.data == {
        "split_from": "NOVA-0001",
        "note": "part 3 of 3: events 16,000,001 to 20,000,000",
    }


def test_parts_are_checked_and_signed_by_themselves(queued, liaison, approver):
    part = split(queued, liaison)[0]
    assert not part.signatures.exists()
    submit_request(request=part, by=liaison, at=AT)
    check_request(request=part, at=AT)
    assert approve_request(request=part, by=approver, at=AT).state == "queued"


def test_parts_keep_the_priority_that_the_opg_has_set(queued, liaison, approver, browse):
    set_priority(
        request=queued,
        by=approver,
        at=AT,
        reason="For the conference.",
        priority=7,
        priority_class="high",
    )
    page = browse(liaison).post(
        f"/requests/{queued.key}/split/", {"by": "events", "size": 8_000_000, "reason": "x"}
    )
    assert "Each part keeps the priority set by the OPG: high 7." in page.content.decode()
    for part in split(queued, liaison):
        part.refresh_from_db()
        assert (part.priority_class, part.priority) == ("high", 7)
        event = events_of(part).filter(kind="request.priority_set").get()
        assert (event.actor, event.reason) == (
            "opsportal",
            "From NOVA-0001, opg-one: For the conference.",
        )
    assert (
        "set the priority high 7" in browse(liaison).get(f"/requests/{part.key}/").content.decode()
    )


def test_that_keep_up_is_never_split_is_told_before_the_form(nova, liaison, browse):
    keep_up = workflow_of(newest_version("keep_up"))
    wanted = create_draft(
        experiment=nova,
        content=content(workflow=keep_up, stages=(stage(kind="reconstruction"),)),
        by=liaison,
        at=AT,
    )
    page = browse(liaison).get(f"/requests/{wanted.key}/split/").content.decode()
    assert "This request cannot be split. Keep-up processes each file once" in page
    assert "Preview" not in page


@pytest.mark.parametrize("state", SENT)
def test_nothing_is_done_once_jobs_may_have_been_sent(state, nova, liaison, approver):
    sent = request_in(state, by=liaison, experiment=nova, approver=approver)
    other = draft(liaison, nova)
    before = Request.objects.count()
    with pytest.raises(InvalidTransition, match=f"is “{sent.get_state_display()}”"):
        split(sent, liaison)
    with pytest.raises(InvalidTransition, match=sent.key):
        combine([other, sent], liaison)
    assert (Request.objects.count(), RequestLink.objects.count()) == (before, 0)


def test_request_that_was_tested_is_not_split(queued, liaison, approver):
    for verb in ("test", "fail-test"):
        MOVE_FUNCTIONS[verb](request=queued, by=approver, at=AT, reason="wrong geometry")
    with pytest.raises(InvalidTransition, match="if only as a test"):
        split(queued, liaison)


def a_job(request):
    (job,) = store(clusters.cluster(), record(1))
    attach_origin(origins={job.pk: (request.key, "generation")}, at=AT)


def a_waiting_job(request):
    cluster = clusters.cluster()
    queued = [CurrentJobs("1", AT, CurrentState.QUEUED, 1, "nova")]
    store_queue(
        cluster=cluster, jobs=queued, origins={"1": [Origin(AT, request.key, "generation")]}, at=AT
    )


def a_report(request):
    report_output(
        stage=request.stages.first(), key="1", counts={"files_out": 1}, by=request.created_by, at=AT
    )


@pytest.mark.parametrize("sign", [a_job, a_waiting_job, a_report])
def test_request_with_jobs_is_not_split(sign, queued, liaison):
    sign(queued)
    with pytest.raises(InvalidTransition, match="Jobs were already submitted"):
        split(queued, liaison)


@pytest.mark.parametrize(
    ("state", "role", "may"),
    [
        ("draft", "liaison", True),
        ("draft", "approver", False),
        ("queued", "approver", True),
        ("queued", "shifter", False),
        ("queued", "other_liaison", False),
        ("queued", "admin", False),
    ],
)
def test_who_may_is_who_may_supersede(state, role, may, nova, liaison, approver, request):
    whole = request_in(state, by=liaison, experiment=nova, approver=approver)
    other = request_in(state, by=liaison, experiment=nova, approver=approver)
    by = request.getfixturevalue(role)
    if may:
        assert split(whole, by)[0].created_by == by
        return
    for attempt in (lambda: split(whole, by), lambda: combine([whole, other], by)):
        with pytest.raises(NotAllowed):
            attempt()


def test_approver_who_split_a_request_does_not_sign_its_parts(queued, liaison, approver):
    part = split(queued, approver)[0]
    submit_request(request=part, by=liaison, at=AT)
    check_request(request=part, at=AT)
    with pytest.raises(NotAllowed):
        approve_request(request=part, by=approver, at=AT)


def test_without_reason_or_of_an_old_version_nothing_is_done(queued, liaison, approver):
    with pytest.raises(InvalidFields):
        split(queued, liaison, reason=" ")
    with pytest.raises(StaleState):
        split(queued, liaison, version=queued.version - 1)
    set_priority(request=Request.objects.get(), priority=5, by=approver, at=AT, reason="soon")
    with pytest.raises(StaleState):
        links.split_request(
            request=queued,
            by_what=SplitUnit.EVENTS,
            size=8_000_000,
            by=liaison,
            at=AT,
            reason="late",
        )
    assert Request.objects.get().state == "queued"


def test_several_become_one(nova, liaison, approver):
    old = [
        request_in(state, by=liaison, experiment=nova, approver=approver)
        for state in ("queued", "draft")
    ]

    made = combine(old, liaison)

    assert (made.key, made.state, events_of(made).get().data) == (
        "NOVA-0003",
        "draft",
        {"combined_from": ["NOVA-0001", "NOVA-0002"]},
    )
    assert sums([content_of(made)]) == sums([content_of(each) for each in old])
    assert list(Request.objects.order_by("pk").values_list("state", flat=True)) == [
        "superseded",
        "cancelled",
        "draft",
    ]
    assert [events_of(each).last().data["combined_into"] for each in old] == ["NOVA-0003"] * 2


def test_requests_of_two_experiments_and_the_same_twice_are_refused(nova, dune, liaison, both):
    from apps.accounts.domain.roles import grant_role

    grant_role(user=liaison, role="liaison", experiment=dune, by="test", at=AT)
    mine, theirs = draft(liaison, nova), draft(type(liaison).objects.get(pk=liaison.pk), dune)
    with pytest.raises(InvalidFields, match="of one experiment"):
        combine([mine, theirs], type(liaison).objects.get(pk=liaison.pk))
    with pytest.raises(InvalidFields, match="each once"):
        combine([mine, mine], liaison)


def test_links_are_told_at_both_ends_once(nova, liaison, approver, queued):
    one, two, three = split(queued, liaison)
    made = combine([one, two, three], liaison)
    assert [
        (r.label, r.request.key) for r in links.related_to(Request.objects.get(pk=queued.pk))
    ] == [
        ("Split into", "NOVA-0002"),
        ("Split into", "NOVA-0003"),
        ("Split into", "NOVA-0004"),
    ]
    assert [(r.label, r.request.key, r.note[:11]) for r in links.related_to(two)] == [
        ("Split from", "NOVA-0001", "part 2 of 3"),
        ("Combined into", "NOVA-0005", ""),
    ]
    assert {(r.label, r.request.key) for r in links.related_to(made)} == {
        ("Combined from", f"NOVA-000{number}") for number in (2, 3, 4)
    }
    assert content_of(made) == content_of(queued)


def test_parts_of_monte_carlo_pass_the_checks_beside_each_other(nova, liaison):
    of = workflow_of(newest_version("monte_carlo"))
    whole = draft(liaison, nova, **vars(monte_carlo(workflow=of)))
    parts = split(whole, liaison, size=content_of(whole).stages[0].events // 2)
    for part in parts:
        submit_request(request=part, by=liaison, at=AT)
        assert check_request(request=part, at=AT).state == "awaiting_approval"


def test_page_shows_the_parts_before_anything_is_done(queued, liaison, browse):
    client, address = browse(liaison), f"/requests/{queued.key}/split/"
    page = client.get(address).content.decode()
    assert "events (20,000,000 total)" in page
    assert "Split into" not in page

    sent = {
        "by": "events",
        "size": "8 M",
        "reason": "too large",
        "version": queued.version,
        "do": "split",
    }
    page = client.post(address, sent).content.decode()  # not seen yet, so it is shown
    assert "Split into 3 requests" in page
    assert "Part 3 of 3: events 16,000,001 to 20,000,000" in page
    assert Request.objects.count() == 1

    client.post(address, sent | {"seen": "events 9000000"})
    assert Request.objects.count() == 1
    page = client.post(address, sent | {"seen": "events 8000000"}, follow=True).content.decode()
    assert "Split NOVA-0001 into NOVA-0002, NOVA-0003, NOVA-0004." in page
    assert "superseded the request, split into NOVA-0002, NOVA-0003, NOVA-0004" in page
    assert "Related requests" in page
    part = client.get("/requests/NOVA-0003/").content.decode()
    assert "created the request, split from NOVA-0001, part 2 of 3" in part
    assert "Split from" in part


def test_page_says_why_not(nova, liaison, approver, browse):
    running = request_in("running", by=liaison, experiment=nova, approver=approver)
    bare = draft(liaison, nova, stages=(stage(events=None),))
    client = browse(liaison)
    for verb in ("split", "combine"):
        answer = client.get(f"/requests/{running.key}/{verb}/")
        assert (answer.status_code, "jobs may have been submitted" in answer.content.decode()) == (
            200,
            True,
        )
        assert client.post(f"/requests/{running.key}/{verb}/", {"do": verb}).status_code == 409
    assert (
        "it needs more than one run, file or event"
        in client.get(f"/requests/{bare.key}/split/").content.decode()
    )
    assert (
        client.post(f"/requests/{bare.key}/split/", {"by": "events", "size": "1"}).status_code
        == 400
    )


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ({"size": "0"}, "from 1 to 19,999,999"),
        ({"size": "much"}, "Enter a whole"),
        ({"by": "runs"}, "for “Split by”"),
        ({}, "3 parts"),
    ],
)
def test_what_was_typed_wrong_is_told_beside_its_field(sent, words, queued, liaison, browse):
    data = {"by": "events", "size": "8 M", "do": "preview"} | sent
    answer = browse(liaison).post(f"/requests/{queued.key}/split/", data)
    assert answer.status_code == (400 if sent else 200)
    assert words in answer.content.decode() or not sent


def test_combine_page_offers_what_fits_and_says_why_others_do_not(nova, liaison, approver, browse):
    base = draft(liaison, nova)
    fits = request_in("awaiting_approval", by=liaison, experiment=nova, approver=approver)
    draft(liaison, nova, stages=(stage("generation", release="v10"), stage("simulation")))
    request_in("running", by=liaison, experiment=nova, approver=approver)
    client, address = browse(liaison), f"/requests/{base.key}/combine/"

    page = client.get(address).content.decode()
    assert f'value="{fits.key}"' in page
    assert "Stage 1: different releases, v09_72 and v10." in page
    assert 'value="NOVA-0003"' not in page
    assert "NOVA-0004" not in page

    sent = {"chosen": [fits.key], "others": "", "reason": "twice", "do": "combine"}
    page = client.post(address, sent)
    assert "Combine 2 requests" in page.content.decode()
    assert "40,000,000" in page.content.decode()
    assert Request.objects.count() == 4
    seen = page.context["seen"]
    assert client.post(address, sent | {"seen": ["NOVA-0001:7", seen[1]]}).status_code == 200
    client.post(address, sent | {"seen": seen})
    assert Request.objects.get(key="NOVA-0005").state == "draft"
    assert Request.objects.get(pk=base.pk).state == "cancelled"


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ("", "Choose 1 to 49 other requests."),
        ("DUNE-0001", "DUNE-0001: not found, or you do not have access."),
        ("NOVA-0001", "Choose from 1 to 49"),
        ("NOVA-0002", "NOVA-0001 and NOVA-0002: Stage 1: different releases"),
    ],
)
def test_combine_page_tells_what_is_wrong(
    others, words, nova, dune, liaison, other_liaison, browse
):
    base = draft(liaison, nova)
    draft(liaison, nova, stages=(stage("generation", release="v10"), stage("simulation")))
    draft(other_liaison, dune)
    answer = browse(liaison).post(
        f"/requests/{base.key}/combine/", {"others": others, "do": "preview"}
    )
    assert (answer.status_code, words in answer.content.decode()) == (400, True)


def test_approver_combines_no_drafts_of_others(nova, liaison, approver, queued, browse):
    other = draft(liaison, nova)
    client, address = browse(approver), f"/requests/{queued.key}/combine/"
    assert "Only its liaisons can combine it." in client.get(address).content.decode()
    answer = client.post(address, {"others": other.key, "reason": "x", "do": "preview"})
    assert "Only its liaisons can combine it." in answer.content.decode()
    assert client.get(f"/requests/{other.key}/combine/").status_code == 403


def test_api_previews_splits_combines_and_relates(queued, liaison, api):
    client, address = api(liaison), f"/api/v1/requests/{queued.key}/"
    how = {"by": "events", "size": 8_000_000, "reason": "too large"}
    shown = client.post(f"{address}split/", how | {"preview": True}, format="json")
    assert (shown.status_code, len(shown.json()["requests"]), Request.objects.count()) == (
        200,
        3,
        1,
    )
    made = client.post(f"{address}split/", how, format="json")
    assert (made.status_code, made.json()["requests"][1]["request"]) == (201, "NOVA-0003")
    assert made.json()["requests"][1]["content"]["stages"][0]["events"] == 8_000_000
    again = client.post(f"{address}split/", how, format="json")
    assert (again.status_code, "and closed" in again.json()["detail"]) == (409, True)
    both = {"others": ["NOVA-0003", "NOVA-0004"], "reason": "no"}
    preview = client.post(
        "/api/v1/requests/NOVA-0002/combine/", both | {"preview": True}, format="json"
    )
    assert preview.json()["requests"][0]["content"]["stages"][0]["events"] == 20_000_000
    joined = client.post("/api/v1/requests/NOVA-0002/combine/", both, format="json")
    assert (joined.status_code, joined.json()["requests"][0]["request"]) == (201, "NOVA-0005")
    related = client.get("/api/v1/requests/NOVA-0003/related/").json()
    assert [(one["relation"], one["request"]) for one in related] == [
        ("Split from", "NOVA-0001"),
        ("Combined into", "NOVA-0005"),
    ]


@pytest.mark.parametrize(
    ("verb", "sent", "field"),
    [
        ("split", {"by": "colour", "size": 1}, "by"),
        ("split", {"by": "events", "size": 20_000_000, "reason": "x"}, "size"),
        ("split", {"by": "events", "size": 8_000_000}, "reason"),
        ("combine", {"others": []}, "others"),
        ("combine", {"others": ["NOVA-0999"], "reason": "x"}, "others"),
    ],
)
def test_api_tells_what_is_wrong_by_field(verb, sent, field, queued, liaison, api):
    answer = api(liaison).post(f"/api/v1/requests/{queued.key}/{verb}/", sent, format="json")
    assert (answer.status_code, list(answer.json())) == (400, [field])


def test_part_is_exported_and_imported_as_any_request(queued, liaison, browse):
    part = split(queued, liaison)[1]
    text = browse(liaison).get(f"/requests/{part.key}/yaml/").content.decode()
    browse(liaison).post("/requests/import/", {"text": text})
    assert content_of(Request.objects.latest("pk")) == content_of(part)


def test_pages_ask_no_more_for_more_requests(nova, liaison, queued, browse):
    client = browse(liaison)
    addresses = [f"/requests/{queued.key}/combine/", f"/requests/{queued.key}/"]

    def queries() -> list[int]:
        found = []
        for address in addresses:
            with CaptureQueriesContext(
                connection,
            ) as asked:
                assert client.get(address).status_code == 200
            found.append(len(asked))
        return found

    one = draft(liaison, nova, stages=content().stages)
    queries()
    few = queries()
    for number in range(5):
        made = draft(liaison, nova, title=f"Another {number}")
        RequestLink.objects.create(
            kind="split", earlier=one if number else queued, later=made, at=AT, by="test"
        )
        RequestLink.objects.create(kind="combined", earlier=made, later=queued, at=AT, by="test")
    assert queries() <= few


def test_combine_page_shows_some_at_a_time_and_keeps_what_was_ticked(
    nova, liaison, browse, monkeypatch
):
    monkeypatch.setattr(links, "OFFERED", 2)
    base, *_ = (draft(liaison, nova, title=f"Part {number}") for number in range(6))
    draft(liaison, nova, stages=(stage("generation"), stage("simulation"), stage("more")))
    client, address = browse(liaison), f"/requests/{base.key}/combine/"

    def listed(answer):
        assert answer.status_code == 200
        return [
            (candidate.request.key, candidate.request.key in answer.context["chosen"])
            for candidate in answer.context["candidates"]
        ]

    newest = client.get(address)
    assert listed(newest) == [("NOVA-0006", False), ("NOVA-0005", False)]  # none of another length
    ticked = {"chosen": ["NOVA-0006"], "others": "NOVA-0002", "reason": "one is enough"}
    older = client.post(address, ticked | {"do": "older", "older": newest.context["older"]})
    assert listed(older) == [("NOVA-0006", True), ("NOVA-0004", False), ("NOVA-0003", False)]
    assert older.context["form"]["others"].value() == "NOVA-0002"
    last = client.post(address, ticked | {"do": "older", "older": older.context["older"]})
    assert (listed(last), last.context["older"]) == ([("NOVA-0006", True), ("NOVA-0002", False)], 0)
    assert listed(client.post(address, {"do": "find", "text": "part 3"})) == [("NOVA-0004", False)]
    assert listed(client.post(address, {"do": "older", "older": "-"})) == listed(newest)

    shown = client.post(address, ticked | {"chosen": ["NOVA-0006", "NOVA-0003"], "do": "preview"})
    assert shown.context["seen"] == ["NOVA-0001:1", "NOVA-0006:1", "NOVA-0003:1", "NOVA-0002:1"]
    assert client.post(address, {"chosen": ["DUNE-0001"], "do": "preview"}).status_code == 400

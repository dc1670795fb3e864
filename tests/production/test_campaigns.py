"""Campaigns: totals are those of a recount, and nobody sees the requests of others in them."""

from datetime import date

from apps.production.domain.campaigns import campaigns_of
from apps.production.domain.content.stages import content_of
from apps.production.domain.requests.drafts import save_draft
from apps.production.enums import RequestState as S
from apps.production.models import Attention, Request, Stage
from tests.factories.requests import AT, content, draft, request_in, stage


def test_totals_count_each_request_once(
    nova, dune, liaison, other_liaison, approver, client, django_assert_num_queries
):
    who = {"by": liaison, "experiment": nova, "approver": approver, "campaign": "MC2026a"}
    states = (S.DRAFT, S.RUNNING, S.DONE, S.REJECTED)
    _, running, done, _ = (
        request_in(state, **who, deadline=date(2026, 12, day))
        for day, state in enumerate(states, 10)
    )
    draft(other_liaison, dune, campaign="MC2026a")
    draft(liaison, nova)
    Request.objects.filter(pk=running.pk).update(part_done=0.25, expected_end=date(2027, 1, 5))
    Request.objects.filter(pk=done.pk).update(part_done=0.5)
    for kind in ("late", "idle"):
        Attention.objects.create(request=running, kind=kind, since=AT, words="x")
    with django_assert_num_queries(1):
        (campaign,) = campaigns_of(Request.objects.filter(experiment=nova))
    jobs = sum(each.jobs for each in Stage.objects.filter(request=running))
    assert (
        campaign.requests,
        campaign.open,
        campaign.done,
        campaign.dropped,
        campaign.attention,
    ) == (
        3,
        2,
        1,
        1,
        1,
    )
    assert (campaign.jobs, campaign.completed, campaign.part_done) == (
        3 * jobs,
        0.75 * jobs,
        0.75 / 3,
    )
    assert (campaign.deadline, campaign.expected_end, campaign.without_end) == (
        date(2026, 12, 10),
        date(2027, 1, 5),
        1,
    )

    assert campaign.late == 1, "the running one: it ends after its deadline"
    client.force_login(liaison)
    page = client.get("/requests/campaigns/")
    assert "1 late</a>" in page.text
    assert "1 draft, 1 running, 1 done" in page.text
    assert "1 request is late." in client.get(f"/requests/?{campaign.query}").text
    assert [row for row, _ in page.context["rows"]] == [campaign]
    assert '<rect class="f-done"' in page.text
    rows = client.get(f"/requests/?{campaign.query}").context["page"].rows
    assert {row.key for row in rows} >= {running.key, done.key}
    assert len(rows) == 4
    assert (
        "MC2026a,NOvA,3,2,1,1" in b"".join(client.get("/requests/campaigns/?format=csv")).decode()
    )
    assert client.get("/requests/known/?kind=campaign&text=2026").json() == {"values": ["MC2026a"]}
    told = client.get("/api/v1/campaigns/").json()
    assert [
        (campaign_row["name"], campaign_row["experiment"], campaign_row["requests"])
        for campaign_row in told
    ] == [("MC2026a", "NOVA", 3)]
    client.force_login(approver)
    names = [row.experiment_key for row, _ in client.get("/requests/campaigns/").context["rows"]]
    assert names == ["NOVA"], (
        "a campaign of drafts alone is shown to liaisons of its experiment only"
    )
    assert [row["experiment"] for row in client.get("/api/v1/campaigns/").json()] == ["NOVA"]
    client.force_login(other_liaison)
    assert [row.name for row, _ in client.get("/requests/campaigns/").context["rows"]] == [
        "MC2026a"
    ]


def test_campaign_of_a_queued_request_changes_without_new_signatures(
    nova, liaison, approver, client
):
    queued = request_in(S.QUEUED, by=liaison, experiment=nova, approver=approver)
    one = content(stages=(stage(), stage("simulation")), campaign="MC2026a")
    save_draft(request=queued, content=one, version=queued.version, by=liaison, at=AT)
    queued.refresh_from_db()
    assert (queued.state, content_of(queued).campaign) == (S.QUEUED, "MC2026a")
    client.force_login(liaison)
    assert client.get(f"/api/v1/requests/{queued.key}/").json()["campaign"] == "MC2026a"
    assert "campaign: MC2026a" in client.get(f"/requests/{queued.key}/yaml/").text
    assert "campaign=MC2026a" in client.get(f"/requests/{queued.key}/").text
    assert 'value="MC2026a"' in client.get(f"/requests/{queued.key}/edit/").text

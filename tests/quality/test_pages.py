"""The card on the request's page, all results by stage, waiving and withdrawing,
and the list of those that wait.
"""

import re

import pytest
from django.urls import reverse

from apps.core.domain.events import publish
from apps.quality.domain.data_quality import waiting_for_quality
from apps.quality.domain.runs import ask_for_run
from apps.quality.models import QualityResult, QualityRun, Waiver
from apps.quality.web import views
from apps.quality.web.templatetags.quality import measured
from tests.factories.quality import LATER

EVIL = "<script>alert(1)</script>"


def url(name, produced):
    return reverse(f"quality:{name}", args=[produced.request.key])


def text(response) -> str:
    return response.content.decode()


def test_card_says_that_nothing_is_judged_yet(make, liaison, browse):
    produced = make("running")
    page = text(browse(liaison).get(url("request", produced), headers={"HX-Request": "true"}))
    assert "Not evaluated yet" in page
    assert "<html" not in page


def test_card_says_that_checks_run_and_asks_again(produced, liaison, browse):
    page = text(browse(liaison).get(url("request", produced), headers={"HX-Request": "true"}))
    assert "The checks are running" in page
    assert 'hx-trigger="every 5s"' in page


def test_request_page_leads_to_it(produced, liaison, approver, browse):
    own = produced.request.get_absolute_url()
    for user, has_button in ((liaison, False), (approver, True)):
        page = text(browse(user).get(own))
        assert url("request", produced) in page
        button = (
            f'<a class="button small" href="{url("request", produced)}">Review data quality</a>'
        )
        assert (button in page) == has_button


def test_results_are_shown_by_stage_with_numbers_and_thresholds(produced, liaison, browse):
    produced.all_good()
    produced.judge()
    page = text(browse(liaison).get(url("request", produced)))
    assert "1 generation" in page
    assert "2 simulation" in page
    assert "10 events were read and 10 written." in page
    assert "Failure rate" in page
    assert "most missing" in page
    assert f"{reverse('jobs:list')}?request={produced.request.key}&amp;stage=simulation" in page
    assert 'name="result"' not in page


def test_approver_waives_and_withdraws(produced, approver, browse):
    opened = produced.judge().open
    client, one = browse(approver), opened[0]
    page = text(client.get(url("request", produced), {"waive": one.pk}))
    assert f'name="result" value="{one.pk}" checked' in page
    refused = client.post(url("waive", produced), {"result": one.pk, "reason": " "})
    assert (refused.status_code, "is required: " in text(refused)) == (400, True)
    page = text(
        client.post(url("waive", produced), {"result": one.pk, "reason": EVIL}, follow=True)
    )
    assert "Result waived." in page
    assert EVIL not in page
    waiver = Waiver.objects.get()
    assert "Withdraw waiver" in text(client.get(url("request", produced), {"withdraw": waiver.pk}))
    page = text(
        client.post(url("withdraw", produced), {"waiver": waiver.pk, "reason": "no"}, follow=True)
    )
    assert "Waiver withdrawn." in page
    assert Waiver.objects.get().withdrawn_by == "opg-one"


def test_several_results_are_waived_for_one_reason_which_closes_the_request(
    produced, approver, browse
):
    opened = [result.pk for result in produced.judge().open]
    client = browse(approver)
    page = text(client.get(url("request", produced)))
    assert page.index("Not passed") < page.index("Runs</b>")
    assert "its production report is frozen" in page
    for sent in ({}, {"result": ["x"]}):
        refused = client.post(url("waive", produced), {**sent, "reason": "Enough."})
        assert (refused.status_code, "Tick the results to waive." in text(refused)) == (400, True)

    sent = {"result": opened[:1], "reason": "Half is enough."}
    assert "Result waived." in text(client.post(url("waive", produced), sent, follow=True))
    again = {"result": opened, "reason": "Half is enough."}
    page = text(client.post(url("waive", produced), again, follow=True))
    assert "was already waived by opg-one" in page
    assert Waiver.objects.count() == 1, "all of them or none"

    rest = {"result": opened[1:], "reason": "Half is enough.", "in_part": "on"}
    page = text(client.post(url("waive", produced), rest, follow=True))
    assert f"{len(opened) - 1} results waived." in page
    assert f"{produced.request.key} is now “partially done”." in page
    assert {waiver.reason for waiver in Waiver.objects.all()} == {"Half is enough."}
    assert produced.fresh().state == "done_partial"


def test_waiver_of_a_result_of_before_is_refused_with_a_message(produced, approver, browse):
    old = produced.judge().open[0]
    produced.report(1, events_out=9)
    produced.judge()
    page = text(
        browse(approver).post(
            url("waive", produced), {"result": old.pk, "reason": "x"}, follow=True
        )
    )
    assert "the checks have run again since" in page
    assert not Waiver.objects.exists()


@pytest.mark.parametrize("name", ["waive", "withdraw"])
def test_liaison_and_shifter_may_not_sign(name, produced, liaison, shifter, browse):
    one = produced.judge().open[0]
    for by in (liaison, shifter):
        sent = {"result": one.pk, "waiver": 1, "reason": "x"}
        assert browse(by).post(url(name, produced), sent).status_code == 403
        page = text(browse(by).get(url("request", produced), {"waive": one.pk}))
        assert 'name="result"' not in page
        assert "An approver who is not a requester can waive results." in page


def test_other_experiment_finds_nothing(produced, other_liaison, browse):
    produced.judge()
    client = browse(other_liaison)
    assert client.get(url("request", produced)).status_code == 404
    assert client.post(url("again", produced)).status_code == 404
    assert produced.request.key not in text(client.get(reverse("quality:waiting")))


def test_older_runs_can_be_looked_at(produced, liaison, browse):
    produced.judge()
    produced.all_good()
    produced.judge()
    page = text(browse(liaison).get(url("request", produced), {"run": 1}))
    assert "This is run 1, not the newest." in page
    assert "Its jobs did not report how many events they wrote." in page
    for wrong in ("3", "x", "9" * 30):
        assert browse(liaison).get(url("request", produced), {"run": wrong}).status_code == 404


def test_checks_are_run_again_on_demand(produced, liaison, browse):
    produced.judge()
    page = text(browse(liaison).post(url("again", produced), follow=True))
    assert "The checks are running again" in page
    assert QualityRun.objects.filter(state="waiting", requested_by="nova-liaison").exists()


def test_list_of_those_that_wait(produced, make, shifter, browse):
    produced.judge()
    make("running")
    page = text(browse(shifter).get(reverse("quality:waiting")))
    assert f"{len(produced.quality().open)} open" in page
    assert page.count("NOVA-") >= 1
    assert "NOVA-0002" not in page


def test_list_of_those_that_wait_is_paged_by_how_long_they_do(
    produced, make, shifter, browse, monkeypatch
):
    others = [make().request for _ in range(2)]
    # The event comes again.
    publish(kind="request.review", target=produced.request, by="x", at=LATER, new="data_quality")
    keys = [others[0].key, others[1].key, produced.request.key]
    monkeypatch.setattr(views, "PAGE", 2)
    client, address = browse(shifter), reverse("quality:waiting")
    first, rest, beyond = (
        text(client.get(f"{address}{query}")) for query in ("", "?after=2", "?after=9")
    )
    assert re.findall("NOVA-[0-9]{4}(?= )", first) == keys[:2]
    assert 'href="?after=2"' in first
    assert re.findall("NOVA-[0-9]{4}(?= )", rest) == keys[2:]
    assert "Next page" not in rest
    assert "Only 3 requests" in beyond


def test_waiver_of_one_request_counts_for_no_other(produced, make, shifter):
    other, left = make(), len(produced.judge().open)
    for one in other.judge().open:
        Waiver.objects.create(
            request=other.request,
            run_number=1,
            made_by=other.liaison,
            reason="x",
            digest=one.digest,
            by=shifter,
            at=LATER,
        )
    opened = {row.pk: row.open for row in waiting_for_quality(shifter)}
    assert opened == {produced.request.pk: left, other.request.pk: 0}


def test_empty_list_says_so(nova, liaison, browse):
    assert "No requests in data quality" in text(browse(liaison).get(reverse("quality:waiting")))


def test_hostile_text_of_checks_stays_text(produced, liaison, browse):
    run = ask_for_run(request=produced.fresh(), by="opsportal", at=LATER)
    QualityResult.objects.create(
        run=run, place=0, position=0, stage_name=EVIL, check_name="x", title=EVIL, subject=EVIL, outcome="failed",
        blocks=True, why=EVIL, digest="x", unit=EVIL[:16],
        numbers=[{"name": EVIL, "value": EVIL, "link": ""}],
    )  # fmt: skip
    QualityRun.objects.update(state="evaluated", evaluated_at=LATER, thresholds=[_setting()])
    for address in (url("request", produced), reverse("quality:waiting")):
        assert "<script>alert" not in text(browse(liaison).get(address))


def _setting() -> dict:
    return {"check": EVIL, "limits": {EVIL: 1}, "effect": EVIL, "unknown": EVIL, "rows": []}


def test_queries_do_not_grow_with_results(produced, liaison, browse, django_assert_max_num_queries):
    produced.judge()
    for position in range(30):
        produced.report(0, key=f"k{position}")
    produced.judge()
    client = browse(liaison)
    client.get(url("request", produced))
    with django_assert_max_num_queries(45):
        client.get(url("request", produced))


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "part", "–"),
        (0.0, "part", "0 %"),
        (0.040876, "part", "4.09 %"),
        (1.0, "part", "100 %"),
        (12.5, "part", "1,250 %"),
        (12345.0, "events", "12,345"),
    ],
)
def test_a_part_is_written_in_percent(value, unit, text):
    assert measured(value, unit) == text

"""Each action that moves jobs or halves their events: form, pack, API, and its cost in queries."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.diagnosis.domain.packs.changes import decide_pack, propose_pack
from apps.recovery.domain.decisions.decide import decide_due, enrol_failures
from apps.recovery.domain.rules.lifecycle import create_rule, move_rule, set_mode
from apps.recovery.domain.rules.packs import export_rules
from apps.recovery.enums import Mode
from apps.recovery.models import Decision, RecoveryRule
from apps.submission.domain.dispatch import dispatch
from tests.factories.requests import AT
from tests.factories.submissions import end_jobs
from tests.factories.verdicts import judge
from tests.pages import text_of
from tests.recovery.conftest import LATER
from tests.recovery.test_other_cluster import add_cluster, jura
from tests.recovery.test_pages import RULE, page

__all__ = ["add_cluster", "jura"]  # fixtures
KINDS = {
    "other-cluster": "run it again on another cluster",
    "avoid-site": "run it again at another site",
    "half-events": "run it again with half of its events",
}
PACK = """experiment: NOVA
recovery_rules:
  - name: Elsewhere
    condition: {end_states: [timeout]}
    action: {kind: KIND}
"""


@pytest.mark.parametrize("kind", KINDS)
def test_rule_is_written_in_the_form(client, shifter, kind):
    form = text_of(page(client, shifter, "/recovery/new/"))
    assert "Another cluster is one that starts requests of the experiment automatically" in form
    shown = page(client, shifter, "/recovery/new/", **{**RULE, "kind": kind, "name": "Elsewhere"})
    assert KINDS[kind] in text_of(shown)
    rule = RecoveryRule.objects.get(name="Elsewhere")
    assert (rule.definition["action"]["kind"], rule.mode) == (kind, "passive")
    edited = page(client, shifter, f"/recovery/rules/{rule.pk}/edit/").content.decode()
    assert f'<option value="{kind}" selected>' in edited


@pytest.mark.parametrize("kind", KINDS)
def test_rule_is_declared_in_a_pack_and_exported(approver, nova, kind):
    text = PACK.replace("KIND", kind)
    pack = propose_pack(text=text, by=approver, at=AT, reason="Our rules.")
    decide_pack(proposed=pack, approve=True, by=approver, at=AT)
    rule = RecoveryRule.objects.get(name="Elsewhere")
    assert rule.definition["action"]["kind"] == kind
    assert f"kind: {kind}" in export_rules(nova)


@pytest.mark.parametrize("kind", KINDS)
def test_rule_is_written_by_the_api(client, shifter, kind):
    client.force_login(shifter)
    definition = {"condition": {"end_states": ["timeout"]}, "action": {"kind": kind}}
    made = client.post(
        "/api/v1/recovery-rules/",
        {"name": "Elsewhere", "definition": definition, "reason": "Test."},
        content_type="application/json",
    )
    assert made.status_code == 201, made.content
    assert made.json()["definition"]["action"]["kind"] == kind


@pytest.mark.parametrize("kind", KINDS)
def test_deciding_costs_the_same_number_of_queries_for_any_number_of_jobs(
    approver, assignment, jura, send, kind
):
    definition = {"condition": {"verdicts": ["service"]}, "action": {"kind": kind}}
    rule = create_rule(name="Elsewhere", definition=definition, by=approver, at=LATER)
    move_rule(rule=rule, before=RecoveryRule.objects.first(), by=approver)
    set_mode(rule=rule, mode=Mode.ACTIVE, by=approver, at=LATER, reason="Test.")
    first = send()
    end_jobs(first, failed={0, 1, 2}, at=LATER)
    dispatch.refresh_progress(cluster=assignment.cluster, at=LATER)
    judge(first, {0: "service"}, at=LATER)
    with CaptureQueriesContext(connection) as few:
        enrol_failures(at=LATER)
        decide_due(at=LATER)
    Decision.objects.all().delete()
    judge(first, {1: "service", 2: "service"}, at=LATER)
    with CaptureQueriesContext(connection) as many:
        enrol_failures(at=LATER)
        decide_due(at=LATER)
    assert Decision.objects.filter(rule=rule).count() == 3
    assert len(many) == len(few)

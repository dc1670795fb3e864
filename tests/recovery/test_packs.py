"""Recovery rules in packs: faults with lines, effect, versions, what is switched off, export."""

import pytest
import yaml

from apps.core.errors import InvalidFields
from apps.diagnosis.domain.packs.changes import checked_pack, decide_pack, effect_of, propose_pack
from apps.diagnosis.domain.packs.reading import read_pack
from apps.recovery.domain.rules.lifecycle import change_rule, create_rule, set_mode
from apps.recovery.enums import Mode
from apps.recovery.models import RecoveryRule
from tests.factories import people
from tests.factories.requests import AT

PACK = """experiment: NOVA
recovery_rules:
  - name: Busy server
    scope: {stage: reco}
    condition: {known_errors: [SAMWEB-5XX]}
    action: {kind: retry, wait_minutes: 15}
"""
OTHER = """  - name: Killed
    condition:
      signals: [9]
    action: {kind: more-memory, factor: 2, most_factor: 3}
    limits: {attempts: 2}
"""
DEFINITION = {"condition": {"signals": [9]}, "action": {"kind": "retry"}}


@pytest.fixture
def apply(approver, nova):
    """Return a function that proposes and approves a pack."""

    def applying(text):
        pack = propose_pack(text=text, by=approver, at=AT, reason="Our rules.")
        return decide_pack(proposed=pack, approve=True, by=approver, at=AT)

    return applying


def own_rules():
    rules = RecoveryRule.objects.filter(of_pack=True).order_by("position")
    return [(rule.name, rule.version, rule.mode) for rule in rules]


def test_approved_rules_are_passive_and_of_the_experiment(apply, nova):
    apply(PACK + OTHER)
    assert own_rules() == [("Busy server", 1, "passive"), ("Killed", 1, "passive")]
    rule = RecoveryRule.objects.get(name="Busy server")
    assert (rule.experiment, rule.definition["scope"]["stage"]) == (nova, "reco")
    assert rule.versions.get().reason == "Pack of NOvA, version 1: Our rules."


def test_changed_rule_is_a_new_passive_version_and_a_missing_one_is_off(apply, approver):
    apply(PACK + OTHER)
    for rule in RecoveryRule.objects.filter(of_pack=True):
        set_mode(rule=rule, mode=Mode.ACTIVE, by=approver, at=AT, reason="Agreed.")
    changed = PACK.replace("wait_minutes: 15", "wait_minutes: 30")
    effect = effect_of(checked_pack(changed, by=approver))
    assert effect.added == []
    assert effect.changed == ["recovery rule “Busy server”"]
    assert effect.removed == ["recovery rule “Killed”"]
    apply(changed)
    assert own_rules() == [("Busy server", 2, "passive"), ("Killed", 1, "off")]
    apply(changed + OTHER)
    assert own_rules() == [("Busy server", 2, "passive"), ("Killed", 1, "passive")]


def test_unchanged_rule_keeps_acting(apply, approver):
    apply(PACK)
    rule = RecoveryRule.objects.get(name="Busy server")
    set_mode(rule=rule, mode=Mode.ACTIVE, by=approver, at=AT, reason="Agreed.")
    effect = effect_of(checked_pack(PACK + OTHER, by=approver))
    assert (effect.added, effect.changed) == (["recovery rule “Killed”"], [])
    apply(PACK + OTHER)
    assert own_rules() == [("Busy server", 1, "active"), ("Killed", 1, "passive")]


def test_pack_without_rules_leaves_rules_of_pages_alone(apply, approver, nova):
    rule = create_rule(name="By hand", definition=DEFINITION, experiment=nova, by=approver, at=AT)
    apply(PACK)
    rule.refresh_from_db()
    assert (rule.mode, rule.of_pack) == ("passive", False)
    apply(PACK + OTHER.replace("Killed", "by hand"))
    rule.refresh_from_db()
    assert (rule.version, rule.of_pack) == (2, True)


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("kind: retry", "kind: pray", "Line 6: Busy server, action.kind: Input should be"),
        ("wait_minutes: 15", "wait_minutes: -1", "Line 6: Busy server, action.wait_minutes:"),
        ("[SAMWEB-5XX]", "[SAMWEB-5XX, 7]", "Line 5: Busy server, condition.known_errors.1:"),
        ("{known_errors: [SAMWEB-5XX]}", "{}", "Line 5: Busy server, condition: Choose at least"),
        ("name: Busy server", "name: x", "Line 3: name: Enter 3 to 64 characters."),
        ("- name: Busy server\n    scope", "- scope", "Line 3: A recovery rule needs a name."),
        ("scope:", "reach:", "Line 4: Unknown field “reach”."),
        ("Busy server", "More memory", "Line 3: The rule “More memory” exists and is not of"),
        ("Busy server", "killed", "Line 7: “Killed” appears twice."),
        ("experiment: NOVA\n", "experiment: NOVA\n\n", None),
    ],
)
def test_faults_name_their_lines(approver, nova, old, new, fault):
    text = PACK.replace(old, new) + OTHER
    assert text != PACK + OTHER
    if fault is None:
        assert checked_pack(text, by=approver).faults == []
        return
    with pytest.raises(InvalidFields) as error:
        checked_pack(text, by=approver)
    assert any(problem.startswith(fault) for problem in error.value.problems["text"]), error.value


def test_reading_many_rules_asks_as_few_queries_as_one(nova, django_assert_num_queries):
    many = PACK
    for number in range(50):
        many += OTHER.replace("Killed", f"Killed {number}")
    for text in (PACK, many):
        with django_assert_num_queries(3):
            assert read_pack(text).faults == []


def test_export_is_a_pack_that_changes_nothing(apply, approver, nova, client, other_liaison):
    apply(PACK + OTHER)
    odd = create_rule(name="1e3", definition=DEFINITION, experiment=nova, by=approver, at=AT)
    change_rule(
        rule=odd,
        definition={**DEFINITION, "scope": {"stage": "0012", "site": "yes"}},
        by=approver,
        at=AT,
        reason="Names that YAML may take for something else.",
        base=1,
    )
    client.force_login(people.liaison_of(nova))
    response = client.get("/recovery/experiments/NOVA/rules.yaml")
    text = response.content.decode()
    assert response["Content-Type"] == "application/yaml"
    assert [rule["name"] for rule in yaml.safe_load(text)["recovery_rules"]] == [
        "Busy server",
        "Killed",
        "1e3",
    ]
    assert "control_percent" not in text, "defaults are left out"
    RecoveryRule.objects.filter(pk=odd.pk).update(of_pack=True)
    effect = effect_of(checked_pack(text, by=approver))
    assert (effect.added, effect.changed, effect.removed) == ([], [], [])
    client.force_login(other_liaison)
    assert client.get("/recovery/experiments/NOVA/rules.yaml").status_code == 404

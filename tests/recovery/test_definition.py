"""Definitions of recovery rules: what is read, what is refused, and the sentence."""

from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from apps.core.errors import InvalidFields
from apps.diagnosis.engine.evidence.catalogue import built_in
from apps.recovery.domain.rules import shipped
from apps.recovery.domain.rules.definition import read_definition

MEMORY = {
    "condition": {"end_states": ["out_of_memory"]},
    "action": {"kind": "more-memory", "factor": 1.5, "most_factor": 2},
    "limits": {"attempts": 3},
}


def test_sentence_says_all_of_a_rule():
    assert read_definition(MEMORY).sentence == (
        "When a job of any stage ends as out of memory, run it again with 1.5 × memory, up to "
        "2 × what its stage asks for, twice at most."
    )
    everything = {
        "scope": {"stage": "reco", "workflow_type": "keepup", "cluster": "farm", "site": "FNAL"},
        "condition": {
            "verdicts": ["service"],
            "categories": ["service", "site"],
            "known_errors": ["SAM-503"],
            "services": ["samweb"],
            "exit_codes": [65, 66],
            "signals": [9],
            "hold_reasons": ["disk limit", "JobHeld"],
        },
        "action": {"kind": "avoid-host", "wait_minutes": 90},
        "limits": {"attempts": 2},
    }
    assert read_definition(everything).sentence == (
        "When a job of stage reco of keepup requests on farm at FNAL fails, run it again after "
        "1 h 30 min on another host, once at most, if the verdict is a service problem, the "
        "category is service or site, the error is SAM-503, the cause is samweb, the exit code is "
        "65 or 66, the signal is 9, and the job was held for “disk limit” or “JobHeld”."
    )
    nothing = {"condition": {"verdicts": ["code"]}, "action": {"kind": "nothing"}}
    assert read_definition(nothing).sentence == (
        "When a job of any stage fails and the verdict is a code problem, leave it to a person."
    )
    outage = {
        "condition": {"verdicts": ["service"], "categories": ["service"], "alike_jobs": 5},
        "action": {"kind": "retry"},
    }
    assert read_definition(outage).sentence == (
        "When a job of any stage fails, run it again, twice at most, if the verdict is a service "
        "problem, the category is service, and at least 5 jobs fail alike within an hour."
    )


def test_each_retry_waits_twice_as_long_as_the_one_before():
    definition = read_definition({**MEMORY, "action": {"kind": "retry", "wait_minutes": 10}})
    assert definition.sentence.endswith(
        "run it again after 10 min (later twice as long each time), twice at most."
    )
    waits = [definition.action.wait_after(attempt) for attempt in (1, 2, 3, 20)]
    assert waits == [
        timedelta(minutes=10),
        timedelta(minutes=20),
        timedelta(minutes=40),
        timedelta(days=7),
    ]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"condition": {}}, "condition"),
        ({"condition": {"verdicts": ["bad"]}}, "condition.verdicts.0"),
        ({"condition": {"surprise": 1}}, "condition.surprise"),
        ({"condition": {"hold_reasons": [" "]}}, "condition.hold_reasons.0"),
        ({"action": {"kind": "explode"}}, "action.kind"),
        ({"action": {"kind": "more-memory", "factor": 9}}, "action.factor"),
        ({"action": {"kind": "more-memory", "factor": 3, "most_factor": 2}}, "action.most_factor"),
        ({"limits": {"attempts": 1}}, "limits.attempts"),
        ({"limits": {"control_percent": 80}}, "limits.control_percent"),
        ({"limits": {"core_hours_a_day": 0}}, "limits.core_hours_a_day"),
    ],
)
def test_wrong_definition_names_the_field(change, field):
    with pytest.raises(InvalidFields) as refused:
        read_definition({**MEMORY, **change})
    assert list(refused.value.problems) == [field]


def test_shipped_rules_are_valid_and_name_known_errors_that_exist():
    known = {pattern.id for pattern in built_in().patterns}
    rules = yaml.safe_load((Path(shipped.__file__).parent / "shipped.yaml").read_text())
    assert len(rules) == 9
    for rule in rules:
        name = rule.pop("name")
        definition = read_definition(rule)
        assert set(definition.condition.known_errors) <= known, name

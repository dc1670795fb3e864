"""Each rule finds what it is for, names the field, and lets a good request pass."""

from dataclasses import replace
from datetime import date

import pytest

from apps.production.domain.checks import Facts
from apps.production.domain.checks.report import check_shape
from apps.production.domain.content.model import RequestContent, StageContent, list_changes
from tests.factories.checks import blocking
from tests.factories.requests import content, stage

FACTS = Facts(today=date(2026, 11, 20), services=frozenset({"samweb"}))


def chain(*stages: StageContent) -> RequestContent:
    return content(stages=stages)


def test_good_request_has_no_problem():
    assert blocking(content(), FACTS) == {}


def test_empty_draft_can_be_saved_and_lacks_everything():
    empty = RequestContent(stages=(StageContent(),))
    assert check_shape(empty, FACTS) == {}
    assert set(blocking(empty, FACTS)) == {
        "title",
        "purpose",
        "deadline",
        *(
            f"stages.0.{name}"
            for name in (
                "name",
                "release",
                "configuration",
                "events",
                "jobs",
                "memory_bytes",
                "wall_seconds",
                "output_dataset",
            )
        ),
    }


@pytest.mark.parametrize(
    ("written", "path", "message"),
    [
        (content(stages=()), "stages", "Add at least one stage."),
        (
            content(deadline=date(2026, 11, 20)),
            "deadline",
            "The deadline is not in the future. Choose a date after 20 Nov 2026.",
        ),
        (content(requested_priority="high"), "priority_reason", "Give a reason for high priority."),
        (
            content(requested_priority="now"),
            "requested_priority",
            "Choose one of: low, normal, high, urgent.",
        ),
        (content(title="x" * 201), "title", "Use at most 200 characters. This text has 201."),
        (content(purpose="a\0b"), "purpose", "Remove the NUL character."),
        (
            content(stages=(stage(),) * 101),
            "stages",
            "A request has at most 100 stages. This one has 101. Split it.",
        ),
        (chain(stage(events=0)), "stages.0.events", "Enter a number greater than zero."),
        (chain(stage(jobs=-4)), "stages.0.jobs", "Enter a number greater than zero."),
        (chain(stage(memory_bytes=10**14)), "stages.0.memory_bytes", "Enter at most 16 TB."),
        (chain(stage(wall_seconds=31 * 86_400)), "stages.0.wall_seconds", "Enter at most 30 days."),
        (
            chain(stage(jobs=10, events=9)),
            "stages.0.jobs",
            "More jobs than events (9). Reduce the number of jobs.",
        ),
        (
            chain(stage(services=("samweb", "nfs"))),
            "stages.0.services",
            "Service “nfs” does not exist.",
        ),
        (
            chain(stage("a"), stage("a", output_dataset="x")),
            "stages.1.name",
            "Stage 1 already has this name. Choose another one.",
        ),
        (
            chain(stage("two words")),
            "stages.0.name",
            (
                "Use only letters, digits, “.”, “_” and “-”: jobs carry this name in their "
                "environment."
            ),
        ),
        (
            chain(stage("a", output_dataset="x"), stage("b", output_dataset="x")),
            "stages.1.output_dataset",
            "Stage 1 already writes this dataset. Choose another name.",
        ),
        (
            chain(stage("a", input_dataset="nova.mc.b"), stage("b")),
            "stages.0.input_dataset",
            "Stage 2 writes this dataset later. Move it up or read another dataset.",
        ),
        (
            chain(stage("a", input_dataset="nova.mc.a")),
            "stages.0.input_dataset",
            "A stage cannot read its own output.",
        ),
        (
            chain(stage("a", output_dataset=""), stage("b")),
            "stages.1.input_dataset",
            "This stage has nothing to read. Set its input, or the output of stage 1.",
        ),
        (
            chain(stage("a", events=4000), stage("b", events=4001)),
            "stages.1.events",
            "Stage 1 writes only 4,000 events.",
        ),
    ],
)
def test_rule_finds_its_problem(written, path, message):
    assert message in blocking(written, FACTS)[path]


def test_stage_may_read_a_given_or_an_earlier_dataset():
    written = chain(
        stage("a"), stage("b", input_dataset="nova.data.raw"), stage("c", input_dataset="nova.mc.a")
    )
    assert blocking(written, FACTS) == {}


def test_only_what_cannot_be_stored_keeps_a_draft_from_being_saved():
    written = content(deadline=date(2020, 1, 1), stages=(stage("a"), stage("a", events=0)))
    assert set(check_shape(written, FACTS)) == {"stages.1.events"}


def test_changes_name_each_field_with_old_and_new():
    old = content()
    new = replace(
        old,
        title="Other",
        stages=(
            old.stages[0],
            replace(old.stages[1], services=("samweb",), memory_bytes=3_900_000_000),
        ),
    )
    assert list_changes(old, new) == [
        {"path": "title", "old": "ND rock muons, 2026 beam", "new": "Other"},
        {"path": "stages.1.memory_bytes", "old": "4 GB", "new": "3.9 GB"},
        {"path": "stages.1.services", "old": "", "new": "samweb"},
    ]
    assert list_changes(old, old) == []


def test_stage_that_came_or_went_is_one_change():
    old = content()
    shorter = replace(old, stages=old.stages[:1])
    assert list_changes(old, shorter) == [{"path": "stages.1", "old": "simulation", "new": ""}]
    assert list_changes(shorter, old) == [{"path": "stages.1", "old": "", "new": "simulation"}]

"""Parts sum up to the whole exactly, and the whole comes back from them;
what does not go together says why.
"""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.core.errors import InvalidFields
from apps.production.domain.checks.rules.declared import number, text
from apps.production.domain.content.model import RequestContent, StageContent
from apps.production.domain.lineage.combination import KeyedContent, combine, list_obstacles
from apps.production.domain.lineage.splits import MAX_PARTS, SplitUnit, split, split_counts
from apps.production.domain.types.arguments import runs_in
from apps.production.domain.types.declaration import builtin_texts, read_declaration
from tests.factories.requests import content, stage
from tests.factories.workflows import monte_carlo


def workflow(key):
    return read_declaration(builtin_texts()[key], key=key, number=1)


def reprocessing(**changes) -> RequestContent:
    arguments = {"input_type": "raw", "conditions": "v1", "output_type": "reco", "files": 3000}
    first = stage(
        "reco",
        kind="reconstruction",
        input_dataset="nova.raw",
        events=9_000_001,
        jobs=300,
        arguments=arguments,
    )
    second = stage(
        "ana", kind="analysis", events=8_000_000, jobs=70, arguments={**arguments, "files": 300}
    )
    values = {
        "workflow": workflow("reprocessing"),
        "arguments": {"runs": "1001-1100, 1200"},
        "stages": (first, second),
    }
    return content(**{**values, **changes})


def sums(contents) -> list:
    return [
        (
            sum(stage.events for stage in each),
            sum(stage.jobs for stage in each),
            sum(number(stage, "files") or 0 for stage in each),
        )
        for each in zip(*(content.stages for content in contents), strict=True)
    ]


def runs_of(contents, name) -> list[int]:
    ranges = [run for content in contents for run in runs_in(text(content, name))]
    return sorted(number for first, last in ranges for number in range(first, last + 1))


counts = st.integers(60, 10**7)
originals = st.builds(
    lambda events, more, jobs, files, runs: reprocessing(
        arguments={"runs": runs},
        stages=(
            replace(
                reprocessing().stages[0],
                events=events,
                jobs=jobs,
                arguments={**reprocessing().stages[0].arguments, "files": files},
            ),
            replace(reprocessing().stages[1], events=more, jobs=jobs),
        ),
    ),
    counts,
    counts,
    counts,
    counts,
    st.sampled_from(["1-60", "5, 7-80, 100", "1-50000", "10-40, 50-100, 1000-1002"]),
)


@settings(max_examples=30, deadline=None)
@given(original=originals, by=st.sampled_from(SplitUnit), parts=st.integers(2, 33), data=st.data())
def test_sums_of_parts_are_exactly_those_of_the_whole_which_comes_back(original, by, parts, data):
    total = split_counts(original)[by]
    size = data.draw(st.integers(-(-total // parts), total - 1))

    made = [part.content for part in split(original, by, size).parts]

    assert len(made) == -(-total // size)
    assert sums(made) == sums([original])
    assert all(stage.events > 0 and stage.jobs > 0 for part in made for stage in part.stages)
    lead = [split_counts(part).get(by, 1) for part in made]
    assert lead == [size] * (len(made) - 1) + [total - size * (len(made) - 1)]
    if by is SplitUnit.RUNS:
        assert runs_of(made, "runs") == runs_of([original], "runs")
    names = [stage.output_dataset for part in made for stage in part.stages]
    assert len(set(names)) == len(names)
    back = combine([KeyedContent(f"N-{i}", part) for i, part in enumerate(made)]).content
    assert runs_of([back], "runs") == runs_of([original], "runs")
    assert replace(back, arguments=original.arguments) == original


@settings(max_examples=30, deadline=None)
@given(events=st.integers(100, 10**9), jobs=st.integers(50, 5000), size=st.integers(1, 10**9))
def test_made_events_get_seeds_and_run_numbers_of_their_own(events, jobs, size):
    original = monte_carlo(workflow=workflow("monte_carlo"))
    stages = tuple(replace(stage, events=events, jobs=jobs) for stage in original.stages)
    original = replace(original, stages=stages)
    if not (size < events <= size * MAX_PARTS and jobs >= -(-events // size)):
        with pytest.raises(InvalidFields):
            split(original, SplitUnit.EVENTS, size)
        return
    made = [part.content for part in split(original, SplitUnit.EVENTS, size).parts]
    assert sums(made) == sums([original])
    assert runs_of(made, "run_block") == runs_of([original], "run_block")
    taken = [
        seed
        for part in made
        for seed in range(
            part.arguments["first_seed"], part.arguments["first_seed"] + part.stages[0].jobs
        )
    ]
    assert taken == list(
        range(original.arguments["first_seed"], original.arguments["first_seed"] + jobs)
    )
    assert combine([KeyedContent(str(i), part) for i, part in enumerate(made)]).content == original


def test_remainder_is_the_last_part_and_each_says_what_it_is():
    made = split(reprocessing(), SplitUnit.FILES, 800)
    assert [part.note for part in made.parts] == [
        "part 1 of 4: files 1 to 800",
        "part 2 of 4: files 801 to 1,600",
        "part 3 of 4: files 1,601 to 2,400",
        "part 4 of 4: files 2,401 to 3,000",
    ]
    last = made.parts[3].content
    assert (last.title, last.stages[0].arguments["files"]) == (
        "ND rock muons, 2026 beam (part 4 of 4)",
        600,
    )
    assert [(s.input_dataset, s.output_dataset) for s in last.stages] == [
        ("nova.raw_part4of4", "nova.mc.reco_part4of4"),
        ("", "nova.mc.ana_part4of4"),
    ]
    assert "Define these datasets" in made.notes[0]


def test_parts_by_run_read_the_same_dataset():
    parts = split(reprocessing(), SplitUnit.RUNS, 60).parts
    assert [part.content.arguments["runs"] for part in parts] == ["1001-1060", "1061-1100, 1200"]
    assert {part.content.stages[0].input_dataset for part in parts} == {"nova.raw"}
    assert parts[1].note == "part 2 of 2: runs 1061-1100, 1200"


@pytest.mark.parametrize(
    ("by", "size", "field", "words"),
    [
        (SplitUnit.RUNS, 0, "size", "Enter a whole number from 1 to 100"),
        (SplitUnit.RUNS, 101, "size", "The request has 101 runs"),
        (
            SplitUnit.FILES,
            1,
            "size",
            "This would give 3,000 parts. Enter at least 60 for at most 50 parts.",
        ),
        (SplitUnit.EVENTS, 9_000_001, "size", "Enter a whole number from 1"),
    ],
)
def test_what_cannot_be_cut_so_says_why(by, size, field, words):
    with pytest.raises(InvalidFields) as error:
        split(reprocessing(), by, size)
    assert words in error.value.problems[field][0]


def test_too_few_jobs_for_the_parts_and_keep_up_are_refused():
    few = replace(
        reprocessing(), stages=(reprocessing().stages[0], replace(reprocessing().stages[1], jobs=2))
    )
    with pytest.raises(InvalidFields, match="Stage 2 has 2 jobs, fewer than 3 parts"):
        split(few, SplitUnit.FILES, 1000)
    with pytest.raises(InvalidFields, match="The request does not state its number of files"):
        split(content(), SplitUnit.FILES, 10)
    with pytest.raises(InvalidFields, match="Keep-up"):
        split(content(workflow=workflow("keep_up")), SplitUnit.EVENTS, 10_000_000)


def test_draft_without_numbers_can_still_be_split():
    bare = content(stages=(StageContent(name="a", events=10), StageContent(name="b")))
    made = [part.content.stages for part in split(bare, SplitUnit.EVENTS, 4).parts]
    assert [(a.events, a.jobs, b.events) for a, b in made] == [
        (4, None, None),
        (4, None, None),
        (2, None, None),
    ]


MC = monte_carlo(workflow=workflow("monte_carlo"))
OTHER = replace(MC, arguments={"run_block": "910001-910010", "first_seed": 50_000})


def changed(base, position=0, **changes):
    stages = list(base.stages)
    stages[position] = replace(stages[position], **changes)
    return replace(base, stages=tuple(stages))


@pytest.mark.parametrize(
    ("mine", "theirs", "words"),
    [
        (MC, content(), "It has another type: General"),
        (MC, replace(OTHER, stages=OTHER.stages[:1]), "It has 1 stages, but A has 2."),
        (MC, MC, "Both have run 900001 as “Run numbers”."),
        (MC, changed(OTHER, release="v10"), "Stage 1: different releases, v09_72 and v10."),
        (MC, changed(OTHER, 1, name="other"), "Stage 2: different names"),
        (
            MC,
            changed(OTHER, arguments={**MC.stages[0].arguments, "generator": "CORSIKA"}),
            "“generator” is GENIE and",
        ),
        (reprocessing(), reprocessing(), "no run numbers separate what they read"),
        (
            reprocessing(),
            reprocessing(arguments={"runs": "1100-1300"}),
            "Both have run 1100 as “Runs”.",
        ),
        (reprocessing(), reprocessing(arguments={}), "Only one of them has “Runs”."),
        (
            reprocessing(),
            changed(reprocessing(arguments={"runs": "5"}), input_dataset="nova.raw2"),
            "they read nova.raw and nova.raw2; one request reads one.",
        ),
        (
            content(),
            changed(content(), 1, input_dataset="elsewhere"),
            "read each other in a different order",
        ),
    ],
)
def test_what_does_not_go_together_says_why(mine, theirs, words):
    assert any(
        words in why for why in list_obstacles(KeyedContent("A", mine), KeyedContent("B", theirs))
    )
    with pytest.raises(InvalidFields):
        combine([KeyedContent("A", mine), KeyedContent("B", theirs)])


def test_combined_request_has_the_sums_and_all_that_was_said():
    urgent = replace(
        OTHER,
        purpose="And more.",
        requested_priority="urgent",
        priority_reason="late",
        deadline=None,
        title="Other",
    )
    made = combine(
        [
            KeyedContent("A", MC),
            KeyedContent("B", changed(urgent, memory_bytes=9 * 10**9, events=None)),
        ]
    )
    joined = made.content
    assert joined.arguments == {"run_block": "900001-904000, 910001-910010", "first_seed": 1}
    assert (joined.title, joined.requested_priority, joined.deadline) == (
        MC.title,
        "urgent",
        MC.deadline,
    )
    assert joined.purpose == f"{MC.purpose}\n\nAnd more."
    assert (joined.stages[0].memory_bytes, joined.stages[0].events) == (9 * 10**9, None)
    assert [
        words
        for words in ("Seeds are consecutive", "number of events", "the largest", "earliest")
        if words in str(made.notes)
    ] == [
        "Seeds are consecutive",
        "number of events",
        "the largest",
        "earliest",
    ]


def test_some_parts_of_a_whole_are_not_it():
    first, second, _ = (
        KeyedContent(str(i), part.content)
        for i, part in enumerate(split(reprocessing(), SplitUnit.FILES, 1000).parts)
    )
    assert list_obstacles(first, second) == []
    with pytest.raises(InvalidFields, match="are not all parts of their dataset"):
        combine([first, second])

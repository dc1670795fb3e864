"""Scripts run by /bin/bash with a command that tells its words:
nothing that a person wrote is read by the shell.
"""

import json
import os
import subprocess
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.core.errors import InvalidFields
from apps.production.domain.content.model import RequestContent
from apps.production.domain.types.declaration import builtin_texts, read_declaration
from apps.submission.domain.arrays.scripts import make_stage_plan, write_script
from apps.submission.domain.arrays.submissions import read_ranges, write_ranges
from tests.factories import requests

PRINT = ["/usr/bin/printf", r"%s\0"]  # tells its words, each with a NUL
DECLARATION = """
title: Test
stages:
  stage:
    title: Stage
    arguments: [name, configuration, input_dataset, output_dataset, events, jobs, memory_bytes, wall_seconds,
      {name: extra, type: text}]
    command: COMMAND
"""
#: Any text that a field may hold: no NUL, no lone surrogates.
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)
NASTY = st.sampled_from(
    ["$(touch /tmp/x)", "`id`", "a'b\"c", "\n; ls", "!!", "\\", "*", "~", "a  b", "{seed}", "#"]
)


def contents(command: list[str], **stage: object) -> RequestContent:
    workflow = read_declaration(DECLARATION.replace("COMMAND", json.dumps(command)), key="t")
    return replace(
        RequestContent(), workflow=workflow, stages=(requests.stage(kind="stage", **stage),)
    )


def run(script: str, task: int = 0, *arguments: str) -> list[str]:
    environment = {
        "SLURM_ARRAY_TASK_ID": str(task),
        "PATH": os.environ["PATH"],
        "LC_ALL": "C.UTF-8",
    }
    done = subprocess.run(
        ["/bin/bash", "-s", "--", *arguments],
        input=script.encode(),
        env=environment,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == b""
    return done.stdout.decode().split("\0")[:-1]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(text=TEXT | NASTY, stage_name=TEXT | NASTY, extra=TEXT | NASTY)
def test_the_command_gets_every_word_as_it_was_written(text, stage_name, extra):
    command = [*PRINT, "c={configuration}", "x{extra}y", "-s{stage}", "{seed}:{extra}"]
    content = contents(
        command,
        configuration=text,
        name=stage_name,
        arguments={"extra": extra},
        jobs=7,
        events=20,
        output_dataset="o",
    )
    script = write_script(make_stage_plan(key="NOVA-0001", content=content, position=0))
    assert run(script, 3) == [f"c={text}", f"x{extra}y", f"-s{stage_name}", f"4:{extra}"]


@settings(max_examples=15, deadline=None)
@given(events=st.integers(1, 10**6), jobs=st.integers(1, 12), retried=st.booleans())
def test_each_event_is_made_by_one_job(events, jobs, retried):
    if events < jobs:
        events, jobs = jobs, events
    words = [*PRINT, "{job_index}", "{job_count}", "{first_event}", "{events_per_job}", "{seed}"]
    plan = make_stage_plan(
        key="NOVA-0001", content=contents(words, events=events, jobs=jobs), position=0
    )
    expected = 1
    for task in range(min(jobs, 12)):
        script = (
            write_script(plan, indices=[9, 9, task]) if retried else write_script(plan, first=None)
        )
        found = run(script, 2) if retried else run(script, 0, str(task))
        assert found == [str(task), str(jobs), str(expected), found[3], str(1 + task)]
        expected += int(found[3])
    assert jobs > 12 or expected == events + 1


@pytest.mark.parametrize(
    ("command", "changes", "said"),
    [
        ([], {}, "no command"),
        (["x", "{configuration}"], {"configuration": "--evil"}, "taken as an option"),
        (["x", "{first_event}"], {"events": 3, "jobs": 4}, "fewer events than jobs"),
        (["x", "{configuration}"], {"configuration": "a\0b"}, "NUL"),
        (["x"], {"jobs": None}, "number of jobs"),
        (["x"], {"memory_bytes": None}, "Memory"),
    ],
)
def test_what_cannot_run_is_refused(command, changes, said):
    with pytest.raises(InvalidFields, match=said):
        make_stage_plan(key="NOVA-0001", content=contents(command, **changes), position=0)


def test_a_stage_without_input_reads_what_the_one_before_writes():
    content = contents(["x", "{input_dataset}"])
    first = replace(content.stages[0], output_dataset="nova.a")
    content = replace(content, stages=(first, replace(first, input_dataset="")))
    assert make_stage_plan(key="K-1", content=content, position=1).words == ("x", "nova.a")


@given(st.sets(st.integers(0, 3000), max_size=50))
def test_ranges_are_read_as_written(numbers):
    assert list(read_ranges(write_ranges(numbers))) == sorted(numbers)


def test_ranges_of_slurm_are_read():
    assert list(read_ranges("0-8:4,11%2")) == [0, 4, 8, 11]


def test_words_of_what_is_empty_are_left_out_together():
    command = ["x", ["--source", "{input_dataset}"], ["--extra={extra}"], "y"]
    assert make_stage_plan(key="K-1", content=contents(command), position=0).words == ("x", "y")
    content = contents(command, input_dataset="raw", arguments={"extra": "1"})
    assert make_stage_plan(key="K-1", content=content, position=0).words == (
        "x",
        "--source",
        "raw",
        "--extra=1",
        "y",
    )


def test_each_job_gets_its_files_whatever_they_are_called():
    plan = make_stage_plan(key="NOVA-0001", content=contents([*PRINT, "{files}"]), position=0)
    files = {0: ["a b", "$(touch /tmp/x)"], 3: ["c'd"]}
    script = write_script(plan, indices=[0, 3, 4], files=files)
    assert run(script, 0) == files[0]
    assert run(script, 1) == files[3]
    assert run(script, 2) == [""], "printf without words"


@pytest.mark.parametrize("reads", ["", "raw"])
def test_what_reads_a_dataset_has_no_end_but_in_a_test(reads):
    content = contents([*PRINT, "{most_events}"], input_dataset=reads, events=5000, jobs=10)
    assert run(write_script(make_stage_plan(key="K-1", content=content, position=0))) == [
        "-1" if reads else "500"
    ]
    tested = make_stage_plan(key="K-1", content=content, position=0, test_events=100)
    assert run(write_script(tested)) == ["100"]


def test_a_test_reads_and_writes_datasets_of_its_own():
    content = contents(
        ["x", "{input_dataset}", "{output_dataset}"], output_dataset="one", input_dataset="raw"
    )
    content = replace(
        content, stages=(*content.stages, replace(content.stages[0], input_dataset=""))
    )
    plans = [make_stage_plan(key="K-1", content=content, position=n, test_events=9) for n in (0, 1)]
    assert [plan.words for plan in plans] == [
        ("x", "raw", "one.test"),
        ("x", "one.test", "one.test"),
    ]


@pytest.mark.parametrize(
    "key",
    [
        *("general", "keep_up", "monte_carlo", "reprocessing", "skim", "merge", "calibration"),
        *("file_processing", "file_processing_merged"),
    ],
)
def test_every_type_that_comes_with_the_portal_has_commands(key):
    workflow = read_declaration(builtin_texts()[key], key=key)
    assert [stage.key for stage in workflow.stages if not stage.command] == []

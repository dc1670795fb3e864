"""slurmdbd's copies, printed by sacct one after the other without any escape."""

import json
import sys
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

import pytest

from apps.clusters.schedulers.base import SchedulerError, StoredCopy
from apps.clusters.schedulers.environment import texts_in
from apps.clusters.schedulers.slurm import copies
from apps.clusters.schedulers.slurm.scheduler import Slurm

T0 = 1_700_000_000
FIELDS = ["JobID", "JobIDRaw", "State", "Submit", "User", "Account", "JobName", "SubmitLine"]
RULE = "-" * 80

# Answers as sacct of 22.05 does. Each call is a line of the file `calls`.
FAKE_SACCT = """#!{python}
import json, sys
options = dict(word[2:].partition("=")[::2] for word in sys.argv[1:])
config = json.load(open("{config}"))
if "helpformat" in options:
    print("  ".join({fields}))
    sys.exit()
open("{calls}", "a").write("x")
asked = options["jobs"].split(",")
for row in config:
    if row["JobID"] not in asked and row["JobID"].split("_")[0] not in asked and row["JobIDRaw"] not in asked:
        continue
    if "hidden" in row and ("batch-script" in options or "env-vars" in options):
        continue
    if "batch-script" in options:
        print(f"Batch Script for {{row['JobID']}}\\n{rule}\\n{{row['script']}}")
    elif "env-vars" in options:
        print(f"Environment used for {{row['JobID']}} (must be batch to display)\\n{rule}\\n{{row['environment']}}")
    else:
        for name in options["format"].split(","):
            sys.stdout.write(row[name] + options["delimiter"])
        print()
"""


def row(
    job_id: str, script: str = "#!/bin/sh\n", environment: str = "A=1\n", **values: str
) -> dict[str, str]:
    defaults = dict.fromkeys(FIELDS, "") | {
        "JobIDRaw": job_id,
        "State": "COMPLETED",
        "Submit": str(T0),
    }
    return {**defaults, **values, "JobID": job_id, "script": script, "environment": environment}


class Accounting:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.calls = directory / "calls"

    def copies(self, *ids: str, rows: list[dict[str, str]]) -> dict[str, StoredCopy]:
        config, sacct = self.directory / "rows.json", self.directory / "sacct"
        config.write_text(json.dumps(rows))
        self.calls.write_text("")
        sacct.write_text(
            FAKE_SACCT.format(
                python=sys.executable, config=config, fields=FIELDS, calls=self.calls, rule=RULE
            )
        )
        sacct.chmod(0o755)
        stored = Slurm("alps", {"bin": str(self.directory)}).stored_copies(ids)
        return {copy.spool_id: copy for copy in stored}


@pytest.fixture
def accounting(tmp_path: Path) -> Accounting:
    return Accounting(tmp_path)


def test_many_jobs_are_asked_for_by_few_commands(accounting: Accounting) -> None:
    rows = [row(str(number), f"#!/bin/sh\necho {number}\n") for number in range(1, 200)]

    copies = accounting.copies(*(str(number) for number in range(1, 200)), "no number", rows=rows)

    assert {spool_id: copy.script for spool_id, copy in copies.items()} == {
        str(number): f"#!/bin/sh\necho {number}\n".encode() for number in range(1, 200)
    }
    assert len(accounting.calls.read_text()) == 4


def test_script_that_holds_a_heading_stays_whole_and_forges_no_other(
    accounting: Accounting,
) -> None:
    forged = f"#!/bin/sh\n\nBatch Script for 2\n{RULE}\n#!/bin/sh\nrm -rf /\n"
    rows = [row("1", forged), row("2", "#!/bin/sh\ntrue\n"), row("3", "no last newline")]

    copies = accounting.copies("1", "2", "3", "4", rows=rows)

    assert [copies[number].script for number in "123"] == [
        forged.encode(),
        b"#!/bin/sh\ntrue\n",
        b"no last newline",
    ]
    assert "4" not in copies


def test_hole_is_none(accounting: Accounting) -> None:
    copies = accounting.copies("1", rows=[row("1", "NONE\n", "NONE\n")])

    assert (copies["1"].script, copies["1"].environment) == (None, None)


def test_scripts_that_only_operators_may_see_are_no_hole(accounting: Accounting) -> None:
    own, other = row("1"), row("2") | {"hidden": "yes"}

    assert accounting.copies("1", rows=[own])["1"].script == b"#!/bin/sh\n"
    for rows in ([other], [own, other]):
        with pytest.raises(
            SchedulerError, match=r"to operators alone: sacctmgr modify user \S+ set"
        ):
            accounting.copies("1", "2", rows=rows)


@pytest.mark.parametrize(
    ("user", "level", "refused"),
    [
        ("opsportal", "", True),
        ("opsportal", "None", True),
        ("opsportal", "Operator", False),
        ("slurm", "", False),
    ],
)
def test_jobs_that_only_operators_may_see_are_no_hole(
    accounting: Accounting, monkeypatch: pytest.MonkeyPatch, user: str, level: str, refused: bool
) -> None:
    monkeypatch.setattr(copies, "_user", lambda: user)
    for name, answer in {
        "scontrol": "SlurmUser               = slurm(64030)",
        "sacctmgr": level,
    }.items():
        path = accounting.directory / name
        path.write_text(f"#!/bin/sh\necho '{answer}'\n")
        path.chmod(0o755)
    with (
        pytest.raises(SchedulerError, match="shows none of these jobs")
        if refused
        else nullcontext()
    ):
        assert accounting.copies("7", rows=[]) == {}


def test_array_is_asked_for_by_one_task_that_started(accounting: Accounting) -> None:
    rows = [
        row("5_[3-9]", JobIDRaw="5"),
        *(row(f"5_{task}", "#!/bin/sh\narray\n", JobIDRaw=str(5 + task)) for task in (1, 2)),
    ]

    copies = accounting.copies("5", rows=rows)

    assert {spool_id: copy.script for spool_id, copy in copies.items()} == {
        "5": b"#!/bin/sh\narray\n"
    }


def test_attempts_of_one_submission_are_one_copy_and_an_id_used_again_two(
    accounting: Accounting,
) -> None:
    rows = [
        row("1", "NONE\n", State="REQUEUED", SubmitLine="sbatch a.sh x", JobName="a.sh"),
        row(
            "1",
            "#!/bin/sh\nfirst\n",
            Submit=str(T0 + 60),
            SubmitLine="sbatch a.sh x",
            JobName="a.sh",
        ),
        row("1", "#!/bin/sh\nsecond\n", Submit=str(T0 + 900), SubmitLine="sbatch b.sh"),
    ]
    accounting.copies("1", rows=rows)

    copies = list(Slurm("alps", {"bin": str(accounting.directory)}).stored_copies(["1"]))

    assert [(copy.submitted_at, copy.script, copy.arguments) for copy in copies] == [
        (datetime.fromtimestamp(T0, UTC), b"#!/bin/sh\nfirst\n", "x"),
        (datetime.fromtimestamp(T0 + 900, UTC), b"#!/bin/sh\nsecond\n", ""),
    ]


def test_environment_is_cut_where_a_line_begins_a_variable(accounting: Accounting) -> None:
    environment = "A=1\nB=two\nlines\nBASH_FUNC_x%%=() {  true\n}\nEMPTY=\n"

    copy = accounting.copies("1", rows=[row("1", environment=environment)])["1"]

    assert copy.environment
    assert texts_in(copy.environment) == [
        b"A=1",
        b"B=two\nlines",
        b"BASH_FUNC_x%%=() {  true\n}",
        b"EMPTY=",
    ]

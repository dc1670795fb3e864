"""A script's arguments, told from a command whose quotes are lost."""

import pytest

from apps.clusters.schedulers.slurm.output_options import (
    arguments_of_command,
    arguments_of_submission,
)


@pytest.mark.parametrize(
    ("submit_line", "name", "expected"),
    [
        ("sbatch reco.sh 7 --fast", "reco.sh", "7 --fast"),
        ("sbatch --parsable --mem 4G -N1 -n 2 -H reco.sh 7", "reco.sh", "7"),
        ("/usr/bin/sbatch -J reco --export=ALL,A=b reco.sh a  b", "reco", "a  b"),
        ("sbatch reco.sh two\nlines", "reco.sh", "two\nlines"),
        ("sbatch reco.sh", "reco.sh", ""),
        ("sbatch", "sbatch", ""),
        ("sbatch --wrap echo a b", "wrap", ""),
        ("sbatch -n1 --wrap=echo a b", "wrap", ""),
        ("salloc -n1 bash x", "bash", ""),
        ("srun reco.sh 7", "reco.sh", ""),
        ("", "", ""),
        # Quotes are lost; the job bears its script's name, and so tells where it is.
        ("sbatch --comment=two words reco.sh 7", "reco.sh", "7"),
        ("sbatch /exp/my scripts/reco.sh 7", "reco.sh", "7"),
        # A heterogeneous job has a script once, after the options of its last component.
        ("sbatch -n1 : -n2 --mem 1G reco.sh 7 : 8", "reco.sh", "7 : 8"),
    ],
)
def test_arguments_of_a_submission(submit_line: str, name: str, expected: str) -> None:
    assert arguments_of_submission(submit_line, name=name) == expected


@pytest.mark.parametrize(
    ("command", "name", "expected"),
    [
        ("/exp/reco.sh", "reco.sh", ""),
        ("/exp/reco.sh a b", "other name", "a b"),
        ("/exp/my scripts/reco.sh a b", "reco.sh", "a b"),
    ],
)
def test_arguments_of_a_command_that_slurmctld_keeps(
    command: str, name: str, expected: str
) -> None:
    assert arguments_of_command(command, name=name) == expected

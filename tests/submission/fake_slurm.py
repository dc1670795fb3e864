"""Slurm's commands as small programs: what they do is told by a file,
what they were told is written to files.
"""

from pathlib import Path

_SBATCH = """#!/bin/bash
cd {directory}
case $(cat mode) in
  refuse) echo "sbatch: error: Batch job submission failed: Invalid account" >&2; exit 1;;
  refuse-exclude) case "$*" in *--exclude=*)
    echo "sbatch: error: Batch job submission failed: Requested node configuration is not available" >&2
    exit 1;; esac;;
  down) echo "sbatch: error: Batch job submission failed: Unable to contact slurm controller" >&2; exit 1;;
  hang) touch began; sleep 60;;
esac
for word; do case $word in --job-name=*) name=${{word#*=}};; esac; done
id=$((100 + $(wc -l < jobs)))
cat > script.$id
printf '%s\\0' "$@" > options.$id
env -0 > environment.$id
echo "$id $name" >> jobs
[ "$(cat mode)" = late ] && sleep 60
echo $id
"""
_ASK = """#!/bin/bash
cd {directory}
[ "$(cat mode)" = down ] && {{ echo "slurm_load_jobs error: Unable to contact slurm controller" >&2; exit 1; }}
for word; do case $word in --name=*) name=${{word#*=}};; esac; done
[ "$(cat asked_by)" = {program} ] || exit 0
while read -r id found; do [ "$found" = "$name" ] && echo "${{id}}{suffix}"; done < jobs
exit 0
"""
_TELL = """#!/bin/bash
cd {directory}
[ "$(cat mode)" = down ] && {{ echo "slurm_load_jobs error: Unable to contact slurm controller" >&2; exit 1; }}
[ "$(cat mode)" = deny ] && {{ echo "Access/permission denied for job $2" >&2; exit 1; }}
echo "{program} $*" >> told
"""


class FakeSlurm:
    """Commands in `directory`, for the option `bin`.

    `mode` is one of ok, refuse, refuse-exclude, down, deny, hang, late.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        (directory / "jobs").touch()
        (directory / "told").touch()
        programs = {
            "sbatch": _SBATCH,
            "squeue": _ASK.replace("{program}", "squeue").replace("{suffix}", ""),
            "sacct": _ASK.replace("{program}", "sacct").replace("{suffix}", "_0"),
            "scancel": _TELL.replace("{program}", "scancel"),
            "scontrol": _TELL.replace("{program}", "scontrol"),
        }
        for program, text in programs.items():
            path = directory / program
            path.write_text(
                text.replace("{directory}", str(directory)).replace("{{", "{").replace("}}", "}")
            )
            path.chmod(0o755)
        self.mode("ok")
        self.asked_by("squeue")

    def mode(self, mode: str) -> None:
        (self.directory / "mode").write_text(mode)

    def asked_by(self, program: str) -> None:
        """Say which command knows the jobs: `squeue`, or for those that are gone from it
        `sacct`.
        """
        (self.directory / "asked_by").write_text(program)

    def jobs(self) -> list[tuple[str, str]]:
        """Return id and name of each submission that came through."""
        lines = (self.directory / "jobs").read_text().splitlines()
        return [(line.split()[0], line.split()[1]) for line in lines]

    def forget_jobs(self) -> str:
        """Forget all jobs, as a controller that takes over; return what was forgotten."""
        jobs = (self.directory / "jobs").read_text()
        (self.directory / "jobs").write_text("")
        return jobs

    def remember_jobs(self, jobs: str) -> None:
        (self.directory / "jobs").write_text(jobs)

    def told(self) -> list[str]:
        """Return what scancel and scontrol were told."""
        return (self.directory / "told").read_text().splitlines()

    def script(self, job_id: str) -> str:
        return (self.directory / f"script.{job_id}").read_text()

    def options(self, job_id: str) -> list[str]:
        return (self.directory / f"options.{job_id}").read_bytes().decode().split("\0")[:-1]

    def environment(self, job_id: str) -> dict[str, str]:
        entries = (self.directory / f"environment.{job_id}").read_bytes().decode().split("\0")[:-1]
        return dict(entry.split("=", 1) for entry in entries)

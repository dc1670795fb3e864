"""Jobs that the portal submitted to the simulated cluster.

Their attempts depend on holds, releases and cancellations. Everything follows from the seed and the
accounting store, so that a restart resumes it.
"""

import heapq
import json
import re
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from apps.demo.simulation.causes import CauseKind, SimulatedCause
from apps.demo.simulation.outages import SimulatedTrouble
from apps.demo.simulation.probes import is_probe_job, probe_attempts
from apps.demo.simulation.workload import Runs, SimulatedArray, SimulatedAttempt, raw_id_of
from apps.demo.simulation.world import DOMAIN, WorldCampaign, random_of

#: The kind of a stage by a part of its name; the first match counts.
_KINDS = (
    ("gen", "generation"),
    ("keep", "keep-up"),
    ("merge", "merge"),
    ("ana", "analysis"),
    ("sim", "simulation"),
)
_USER = "opsportal"
_ROWS = "SELECT spool_id, submitted, job, taken FROM sent"


@dataclass(frozen=True)
class Sent:
    """A submitted job or array with its planned attempts; `held` tasks wait without an end."""

    submission: SimulatedArray
    script: str = field(repr=False)
    variables: list[str] = field(repr=False)
    held: int
    is_new: bool
    is_probe: bool = False


class SentJobs:
    """The submitted jobs in the store.

    Call `note` in the transaction of the step that used the result of `read`.
    """

    def __init__(
        self,
        store: sqlite3.Connection,
        seed: int,
        trouble: SimulatedTrouble,
        *,
        pace: float,
        calm: bool,
    ) -> None:
        self.store = store
        self.runs = Runs(seed=seed, trouble=trouble, pace=pace, calm=calm)
        self._noted: list[tuple[str, tuple[float, int]]] = []

    def taken(self) -> Iterator[Sent]:
        """Yield the jobs accepted in earlier runs."""
        for row in self.store.execute(
            f"{_ROWS} WHERE taken IS NOT NULL ORDER BY spool_id"
        ).fetchall():
            yield self._sent(row, None)

    def read(self, moment: float) -> list[Sent]:
        """Return the jobs submitted, held, released or cancelled since the last step.

        The current step ends at `moment`.
        """
        new = self.store.execute("SELECT spool_id FROM sent WHERE taken IS NULL").fetchall()
        told = self.store.execute("SELECT id, spool_id FROM told WHERE moment IS NULL").fetchall()
        self._noted = []
        for row in new:
            self._noted.append(("UPDATE sent SET taken = ? WHERE spool_id = ?", (moment, row[0])))
        for row in told:
            self._noted.append(("UPDATE told SET moment = ? WHERE id = ?", (moment, row[0])))
        spool_ids = sorted({row[0] for row in new} | {row[1] for row in told})
        rows = []
        for spool_id in spool_ids:
            rows.append(self.store.execute(f"{_ROWS} WHERE spool_id = ?", (spool_id,)).fetchone())
        jobs = []
        for row in rows:
            if row:
                jobs.append(self._sent(row, moment))
        return jobs

    def note(self) -> None:
        """Store when the jobs returned by `read` were accepted."""
        for statement, values in self._noted:
            self.store.execute(statement, values)
        self._noted = []

    def forget(self, before: float) -> None:
        """Delete jobs submitted before a moment."""
        old = "SELECT spool_id FROM sent WHERE submitted < ?"
        self.store.execute(f"DELETE FROM told WHERE spool_id IN ({old})", (before,))
        self.store.execute("DELETE FROM sent WHERE submitted < ?", (before,))

    def _sent(self, row: tuple[int, float, str, float | None], now: float | None) -> Sent:
        """Plan the attempts of a job in the store.

        New jobs and commands are applied as of `now`. If `now` is None, new commands are ignored.
        """
        spool_id, submitted, job, taken = row
        values = json.loads(job)
        campaign = _campaign(values)
        tasks = values["tasks"]
        first_task = values.get("first_task", 0)
        planned = []
        for task in range(tasks):
            if first_task is None:
                job_id = str(spool_id)
            else:
                job_id = f"{spool_id}_{first_task + task}"
            random = random_of(self.runs.seed, "sent", job_id)
            queued = (
                int(max(taken or now or 0, submitted))
                + 2
                + int(random.expovariate(1 / 120) / self.runs.pace)
            )
            raw_id = raw_id_of(spool_id, task, tasks)
            if is_probe_job(values):
                planned.append(probe_attempts(values, raw_id, job_id, queued))
            else:
                planned.append(list(self.runs.attempts(random, raw_id, job_id, queued, campaign)))

        query = "SELECT coalesce(moment, ?), word FROM told WHERE spool_id = ? ORDER BY id"
        commands = []
        for command in self.store.execute(query, (now, spool_id)).fetchall():
            if command[0] is not None:
                commands.append(command)
        attempts, held = _planned(planned, commands, values.get("most_at_once") or 0)

        submission = SimulatedArray(
            spool_id,
            int(submitted),
            campaign,
            tasks,
            first_task is not None,
            tuple(attempts),
            values["name"],
            values["comment"],
        )
        return Sent(
            submission,
            values["script"],
            _variables(values, campaign),
            held,
            is_new=taken is None,
            is_probe=is_probe_job(values),
        )


def _planned(
    planned: list[list[SimulatedAttempt]], commands: Iterable[tuple[float, str]], most: int
) -> tuple[list[SimulatedAttempt], int]:
    """Apply the commands to the planned attempts of all tasks.

    Return the attempts and the number of held tasks.
    """
    tasks = _at_once(planned, most)
    since: float | None = None
    for moment, word in commands:
        if word == "hold" and since is None:
            since = moment
        elif word == "release" and since is not None:
            tasks = _at_once([_held(task, since, moment) for task in tasks], most)
            since = None
        elif word == "cancel":
            tasks = [_cancelled(task, since, moment) for task in tasks]
            return list(chain.from_iterable(tasks)), 0
    if since is None:
        return list(chain.from_iterable(tasks)), 0

    started: list[SimulatedAttempt] = []
    held = 0
    for task in tasks:
        begun = []
        for attempt in task:
            if attempt.started is not None and attempt.started <= since:
                begun.append(attempt)
        started += begun
        if len(begun) < len(task):
            held += 1
    return started, held


def _at_once(tasks: list[list[SimulatedAttempt]], most: int) -> list[list[SimulatedAttempt]]:
    """Delay tasks so that at most `most` run at a time."""
    if not most or most >= len(tasks):
        return tasks
    free = [0] * most
    shifted = list(tasks)
    ready = []
    for n, task in enumerate(tasks):
        if task and task[0].started is not None:
            ready.append((task[0].started, n))
    for started, n in sorted(ready):
        shift = max(0, heapq.heappop(free) - started)
        if shift:
            shifted[n] = [_later(attempt, shift) for attempt in tasks[n]]
        else:
            shifted[n] = tasks[n]
        heapq.heappush(free, max(attempt.ended for attempt in shifted[n]))
    return shifted


def _held(attempts: list[SimulatedAttempt], since: float, until: float) -> list[SimulatedAttempt]:
    """Move attempts that had not started before the hold after the release, in order."""
    started = []
    shift = 0
    for attempt in attempts:
        if attempt.started is not None and attempt.started > since:
            shift = shift or max(0, int(until) + 2 - attempt.started)
            attempt = _later(attempt, shift)  # noqa: PLW2901
        started.append(attempt)
    return started


def _later(attempt: SimulatedAttempt, seconds: int) -> SimulatedAttempt:
    started = None
    if attempt.started is not None:
        started = attempt.started + seconds
    marks = tuple(mark + seconds for mark in attempt.marks)
    return replace(attempt, started=started, ended=attempt.ended + seconds, marks=marks)


def _cancelled(
    attempts: list[SimulatedAttempt], held_since: float | None, moment: float
) -> list[SimulatedAttempt]:
    """Keep attempts that had ended, and end the one that was running or queued."""
    kept: list[SimulatedAttempt] = []
    for attempt in attempts:
        waits = held_since is not None and (attempt.started or attempt.ended) > held_since
        if attempt.ended <= moment and not waits:
            kept.append(attempt)
            continue
        at = int(moment) + 1
        begun = not waits and attempt.started is not None and attempt.started <= moment
        if begun:
            marks = tuple(mark for mark in attempt.marks if mark <= moment)
        else:
            marks = ()
        cause = SimulatedCause(
            CauseKind.CANCELLED if begun else CauseKind.NEVER_STARTED, _USER, max(0, len(marks) - 1)
        )
        more: dict[str, Any] = (
            {} if begun else {"started": None, "host": "", "phases": (), "cpu_share": 0.0}
        )
        return [*kept, replace(attempt, ended=at, cause=cause, marks=marks, **more)]
    return kept


def _campaign(values: dict[str, Any]) -> WorldCampaign:
    """Return the campaign of a job, from its environment and the command in its script."""
    environment = values["environment"]
    request = environment.get("OPSPORTAL_REQUEST", "")
    stage = environment.get("OPSPORTAL_STAGE", "")
    release = re.search(
        r"^export (?:OPSPORTAL_RELEASE=|EXPERIMENT=.* RELEASE=)(\S+)",
        values["script"],
        re.MULTILINE,
    )
    config = re.search(r"(?:--config '?| CONFIG=)([^\s']+)", values["script"])
    user = values.get("owner") or _USER
    if not stage and (
        named := re.search(r"^export EXPERIMENT=.* STAGE=(\S+)", values["script"], re.MULTILINE)
    ):
        stage = named[1]
    experiment = values["account"] or request.rpartition("-")[0] or user
    return WorldCampaign(
        experiment=experiment.upper(),
        stage=stage or "job",
        kind=next((kind for part, kind in _KINDS if part in stage.lower()), "reconstruction"),
        release=release[1] if release else "v1",
        config=config[1] if config else "job.fcl",
        user=user,
        weight=1.0,
        request=request,
        memory_mb=max(1, values["memory_bytes"] // 1024**2),
        limit_seconds=max(60, values["time_limit_seconds"]),
        avoided_hosts=tuple(values.get("avoided_hosts", ())),
    )


def _variables(values: dict[str, Any], campaign: WorldCampaign) -> list[str]:
    """Return the environment of the submission: its own variables and those added by sbatch."""
    usual = {
        "USER": campaign.user,
        "HOME": f"/home/{campaign.user}",
        "PATH": "/usr/local/bin:/usr/bin:/bin",
    }
    return [
        *(f"{name}={text}" for name, text in sorted((usual | values["environment"]).items())),
        f"SLURM_JOB_NAME={values['name']}",
        f"SLURM_SUBMIT_DIR={values['directory'] or '/home/' + campaign.user}",
        f"SLURM_SUBMIT_HOST=portal.{DOMAIN}",
        "SLURM_UMASK=0022",
    ]

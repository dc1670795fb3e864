"""*Upgrade* of the guide, followed on a site that is in use: rolling, with a stop, and back."""

import json
import re
import time
from collections.abc import Callable

from benchmarks.installation.debian import CommandFailed
from benchmarks.installation.load import LOG_IN, Load, Summary, ask, summarize
from benchmarks.installation.site import Site

UNITS = (
    "opsportal-web",
    "opsportal-worker@default",
    "opsportal-worker@harvest",
    "opsportal-worker@archive",
    "opsportal-beat",
)
#: Seconds of load before and after a step, which belong to it: what comes late fails, too.
AROUND_SECONDS = 5
ON_HOLD = (
    "SELECT count(*) FROM production_hold "
    "WHERE experiment_id IS NULL AND stage_id IS NULL AND lifted_at IS NULL"
)
#: How often each job is archived, and its verdict.
JOBS = (
    "SELECT j.job_id, (SELECT count(*) FROM archive_archivedjob a WHERE a.job_id = j.job_id), "
    "v.verdict FROM jobs_job j LEFT JOIN diagnosis_verdict v ON v.job_id = j.id "
    "WHERE j.job_id IN ({jobs})"
)


class Upgrade:
    """Upgrades a site from its version to another, and goes back."""

    def __init__(self, site: Site, version: str) -> None:
        self.site = site
        self.debian = site.debian
        self.previous_version = site.version
        self.version = version
        self.say = site.say
        command = "opsportal-manage --python -"
        self.secrets = json.loads(self.debian.run(command, text=LOG_IN).splitlines()[-1])
        self.load = Load(site, self.secrets)

    def upgrade_without_downtime(self) -> None:
        """Clone, check and upgrade as the guide says, and restart capture; then go back."""
        clone, check, _ = self.site.commands("upgrade", self.version).split("\n")
        # The second line is for further hosts.
        rolling, _ = self.site.commands("rolling upgrade", self.version).split("\n")
        before = self._count_migrations()

        def follow() -> None:
            seconds = self.site.follow("clone of the new release", lambda: self.debian.run(clone))
            seconds += self.site.follow("--check", lambda: self._check(check))
            seconds += self.site.follow("--rolling", lambda: self._upgrade(rolling))
            self.say(f"{seconds:6.1f} s  rolling upgrade of a site")
            self.site.follow("capture", self._restart_capture)

        self._under_load("the rolling upgrade", follow)
        self._check_version(self.version)
        self.say(f"          {self._count_migrations() - before} migrations")
        back = "sh /opt/opsportal/current/deploy/upgrade.sh --back --rolling"
        self._under_load(
            "the way back, rolling",
            lambda: self.site.follow("--back --rolling", lambda: self.debian.run(back)),
        )
        self._check_version(self.previous_version)

    def upgrade_with_stop(self) -> None:
        """Upgrade as the guide says, with a release that is installed; then restore the dump."""
        _, _, upgrade = self.site.commands("upgrade", self.version).split("\n")
        printed: list[str] = []
        self._under_load(
            "the upgrade with a stop",
            lambda: self.site.follow("upgrade", lambda: printed.append(self._upgrade(upgrade))),
            may_fail=True,
        )
        self._check_version(self.version)
        [dump] = re.findall(r"way back: .* --restore \S*/(\S+)", printed[0])
        back = self.site.commands("way back").replace("DUMP", dump)
        self.site.follow("--back --restore", lambda: self.debian.run(back))
        self._check_version(self.previous_version)
        self.site.check(ON_HOLD, "1")
        self._fill_in(self.load.jobs)

    def _fill_in(self, jobs: list[str]) -> None:
        """Fetch the jobs that were captured after the dump from accounting, as the guide says."""
        lost = len(jobs) - self._count_archived(jobs)
        names = " ".join(f"--job {job}" for job in jobs)
        command = "opsportal-manage archive check --cluster alps"
        self.site.follow(
            f"{lost} jobs filled in", lambda: self.debian.run(f"{command} {names} --backfill")
        )
        archived = self._count_archived(jobs)
        if archived != len(jobs):
            raise CommandFailed(f"{archived} of {len(jobs)} jobs are archived")

    def _count_archived(self, jobs: list[str]) -> int:
        names = ", ".join(f"'{job}'" for job in jobs)
        query = f"SELECT count(*) FROM archive_archivedjob WHERE job_id IN ({names})"
        return int(self.site.ask_database(query))

    def _check(self, command: str) -> None:
        """Run `--check`; it ends with the line that the guide shows."""
        printed = self.debian.run(command)
        line = self.site.commands("answer of --check")
        line = line.replace("0.4.0", self.version)
        line = line.replace("0.3.0", self.previous_version, 1)
        if line not in printed:
            raise CommandFailed(f"{command}\nprinted no line {line!r}:\n{printed}")

    def _upgrade(self, command: str) -> str:
        return self.debian.answer(command, [("[y/N]", "y")], seconds=600)

    def _restart_capture(self) -> None:
        self.debian.run("systemctl restart opsportal-capture")

    def _under_load(self, what: str, do: Callable[[], object], *, may_fail: bool = False) -> None:
        """Do this while the site is used; raise `CommandFailed` if its users lose anything."""
        moment = self.debian.run("date '+%Y-%m-%d %H:%M:%S'").strip()
        self.load.start()
        try:
            time.sleep(AROUND_SECONDS)
            do()
            time.sleep(AROUND_SECONDS)
        finally:
            self.load.stop()
        summary = summarize(self.load.answers)
        self._say_summary(what, summary)
        self._say_errors(moment)
        jobs = self.load.jobs
        self.site.follow(
            f"until all {len(jobs)} jobs of that time have a verdict",
            lambda: self.site.wait_for(
                "the verdicts", lambda: self._count_verdicts(jobs) == len(jobs)
            ),
        )
        if not may_fail:
            _check_failures(what, summary)

    def _say_summary(self, what: str, summary: Summary) -> None:
        self.say(
            f"          {what}: {len(summary.failures)} of {summary.requests} requests failed, "
            f"for {summary.longest_outage:.1f} s at most; no good answer for "
            f"{summary.longest_pause:.1f} s; median {summary.median * 1000:.0f} ms, "
            f"longest {summary.longest_answer:.1f} s"
        )

    def _say_errors(self, moment: str) -> None:
        """Print what the portal and PostgreSQL have logged as errors since this moment."""
        printed = self.debian.run(
            f"journalctl --no-pager --output=cat --since '{moment}' --unit 'opsportal*' "
            "| grep --extended-regexp 'ERROR|CRITICAL|Traceback' || true\n"
            f"awk -v since='{moment}' '$1 \" \" $2 >= since && /(ERROR|FATAL):/' "
            "/var/log/postgresql/*.log"
        )
        for line in printed.splitlines():
            self.say(f"          {line}")

    def _count_verdicts(self, jobs: list[str]) -> int:
        """Return how many of these jobs are archived once and have their verdict."""
        names = ", ".join(f"'{job}'" for job in jobs)
        rows = self.site.ask_database(JOBS.format(jobs=names)).split("\n")
        return sum(row.endswith("|1|service") for row in rows)

    def _count_migrations(self) -> int:
        return int(self.site.ask_database("SELECT count(*) FROM django_migrations"))

    def _check_version(self, version: str) -> None:
        """Raise `CommandFailed` unless this version answers, runs and has its schema."""
        ready = ask("/readyz", {})
        if ready.status != 200:
            raise CommandFailed(f"/readyz answers {ready.status}")
        page = ask("/", self.load.cookies)
        if f"opsportal {version} ".encode() not in page.body:
            raise CommandFailed(f"the footer does not name {version}")
        for unit in UNITS:
            process = f"/proc/$(systemctl show --property=MainPID --value {unit})/cwd"
            directory = self.debian.run(f"readlink {process}").strip()
            if directory != f"/opt/opsportal/releases/{version}":
                raise CommandFailed(f"{unit} runs in {directory}, not {version}")
        if version == self.version:
            self.debian.run("opsportal-manage migrate --check")


def _check_failures(what: str, summary: Summary) -> None:
    """Raise `CommandFailed` if a request failed."""
    if not summary.failures:
        return
    lines = [f"during {what}, {len(summary.failures)} requests failed, first:"]
    for answer in summary.failures[:10]:
        lines.append(f"{answer.path}: {answer.status} after {answer.seconds:.1f} s")
    raise CommandFailed("\n".join(lines))

"""A site on a bare Debian: the portal by the commands of the guide, and a Slurm beside it."""

import time
from collections.abc import Callable

from benchmarks.installation.debian import CommandFailed, Debian
from benchmarks.installation.guide import text_of

HOST = "opsportal.example.org"
REDIS_PASSWORD = "a-password-of-redis"
DATABASE_PASSWORD = "a-password-of-postgresql"
ADMIN_PASSWORD = "a long sentence that only Ann knows"
#: Where the container has this code and its repository, instead of a server of the site.
CODE = "/srv/opsportal"
REPOSITORY = "/srv/opsportal.git"
GIT_CONFIG = f"""[safe]
directory = *
[advice]
detachedHead = false
[url "{REPOSITORY}"]
insteadOf = https://git.example.org/opsportal.git
"""
NO_QUESTIONS = "export DEBIAN_FRONTEND=noninteractive"
#: The moment in the guide.
EXAMPLE_MOMENT = "2026-11-30 09:14:00+01"
#: A job that fails as jobs do when a service is down; it waits until its script is captured.
JOB = """#!/bin/bash
echo "$(date -u) INFO Opening the input file"
sleep 20
echo "samweb: HTTP error: 503 Service Unavailable: https://samweb.example.org:8483/sam/nova/api"
exit 1
"""
VERDICT = (
    "SELECT verdict FROM diagnosis_verdict v JOIN jobs_job j ON j.id = v.job_id "
    "WHERE j.job_id = '{job}'"
)
ARCHIVED = "SELECT count(*) FROM archive_archivedjob WHERE job_id = '{job}'"


class Site:
    """Follows the guide in a container, and says how long each step took.

    `version` is the release that is installed.
    """

    def __init__(self, debian: Debian, version: str, say: Callable[[str], None]) -> None:
        self.debian = debian
        self.version = version
        self.say = say

    def follow(self, step: str, do: Callable[[], object]) -> float:
        """Do a step, say how long it took, and return its seconds."""
        begun = time.monotonic()
        do()
        seconds = time.monotonic() - begun
        self.say(f"{seconds:6.1f} s  {step}")
        return seconds

    def commands(self, name: str, version: str = "") -> str:
        """Return the commands of a block, with what every site replaces."""
        text = text_of(name)
        text = text.replace("YOUR.HOST.NAME", HOST).replace("VERSION", version or self.version)
        text = text.replace("A-LONG-RANDOM-PASSWORD", REDIS_PASSWORD)
        return text.replace(":PASSWORD@", f":{DATABASE_PASSWORD}@")

    def install_by_hand(self) -> None:
        self._prepare_machine()
        self.follow("packages, user, code", self._install_code)
        self.follow("PostgreSQL", self._create_database)
        self.follow("Redis", self._configure_redis)
        self.follow("settings and secrets", self._write_settings)
        self.follow("database, files, first admin", self._create_admin)
        self._finish()

    def install_by_setup(self) -> None:
        self._prepare_machine()
        self.follow("packages, user, code", self._install_code)
        self.follow("Redis", self._configure_redis)
        self.follow("setup", self._set_up)
        self._finish()

    def _finish(self) -> None:
        self.follow("services", lambda: self.debian.run(self.commands("services")))
        self.follow("nginx", self._start_nginx)
        self.follow("capture", self._start_capture)

    def _prepare_machine(self) -> None:
        """Make what a site has: its name in the network, a Slurm, and directories of logs."""
        self.debian.write("/etc/gitconfig", GIT_CONFIG)
        self.debian.run(
            f"echo 127.0.0.1 {HOST} >> /etc/hosts\n"
            "mkdir -p /exp/nova/logs /exp/dune/logs\n"
            "useradd --create-home novapro && chown novapro /exp/nova/logs"
        )

    def _install_code(self) -> None:
        commands = self.commands("code")
        commands = commands.replace("apt-get install", "apt-get install --quiet --yes")
        self.debian.run(f"{NO_QUESTIONS}\napt-get update --quiet\n{commands}")

    def _create_database(self) -> None:
        asked = [("password", DATABASE_PASSWORD), ("again", DATABASE_PASSWORD)]
        self.debian.answer(self.commands("database"), asked)

    def _configure_redis(self) -> None:
        self.debian.write("/etc/redis/redis.conf", f"\n{self.commands('redis')}\n", append=True)
        self.debian.run("systemctl restart redis-server")

    def _write_settings(self) -> None:
        self.debian.run(self.commands("secrets"))
        settings = self.commands("settings")
        self.debian.write("/etc/opsportal/opsportal.env", f"{settings}\n")

    def _create_admin(self) -> None:
        asked = [
            ("Username", "ann"),
            ("Email address", "ann@example.org"),
            ("Password", ADMIN_PASSWORD),
            ("Password (again)", ADMIN_PASSWORD),
        ]
        self.debian.answer(self.commands("first admin"), asked)

    def _set_up(self) -> None:
        self.debian.run("install -m 600 /dev/null ~/answers.toml")
        self.debian.write("~/answers.toml", self.commands("answers"))
        self.debian.run(f"cd /opt/opsportal/current\n{self.commands('set up')}")

    def _start_nginx(self) -> None:
        self.debian.run(self.commands("certificate"))
        # The site's own authority would be known to its hosts.
        self.debian.run(
            f"cp /etc/ssl/certs/{HOST}.pem /usr/local/share/ca-certificates/{HOST}.crt\n"
            "update-ca-certificates"
        )
        *commands, _ = self.commands("nginx").split("\n")
        self.debian.run("\n".join(commands))
        self.wait_until_ready()

    def _start_capture(self) -> None:
        self.debian.run(self.commands("capture's user"))
        token = self.commands("capture's token")
        self.debian.run(f"{token} > /etc/opsportal-capture/portal-token")
        self.debian.run("cp /etc/opsportal/secrets/masking-key /etc/opsportal-capture/masking-key")
        settings = self.commands("capture's settings")
        settings = settings.replace("/var/spool/slurmctld", "/srv/slurm/state")
        self.debian.write("/etc/opsportal-capture/capture.env", f"{settings}\n")
        commands = self.commands("capture")
        commands = commands.replace("journalctl", "journalctl --no-pager")
        self.debian.run(commands)

    def start_slurm(self) -> None:
        """Start a Slurm with accounting, and put its configuration where a site has it.

        The portal is an operator of accounting, as docs/slurm.md says.
        """
        self.debian.run(
            f"{NO_QUESTIONS}\n"
            f"python3 {CODE}/bin/slurm-up /srv/slurm --cluster alps\n"
            "mkdir -p /etc/slurm && ln -sf /srv/slurm/etc/slurm.conf /etc/slurm/slurm.conf\n"
            "sacctmgr -i add account opsportal\n"
            "sacctmgr -i add user opsportal account=opsportal adminlevel=Operator"
        )

    def run_failing_job(self) -> None:
        """Submit a job that fails, and wait until it is archived and has its verdict."""
        job = self.submit(JOB)
        self.follow(
            "the script is in the archive",
            lambda: self.wait_for(
                "the script", lambda: self.ask_database(ARCHIVED.format(job=job)) == "1"
            ),
        )
        self.follow(
            "the job has a verdict",
            lambda: self.wait_for(
                "the verdict", lambda: self.ask_database(VERDICT.format(job=job)) == "service"
            ),
        )

    def submit(self, script: str) -> str:
        """Submit a job as a user of the cluster, and return its ID."""
        submit = "runuser -u novapro -- sbatch --parsable --output=/exp/nova/logs/%j.log"
        return self.debian.run(f"cd /exp/nova/logs; {submit}", text=script).split()[-1]

    def restore(self) -> None:
        """Make a backup, lose the database, and restore it."""
        self.follow("backup", lambda: self.debian.run(self.commands("backup")))
        self.follow("restore", lambda: self.debian.run(self.commands("restore")))
        self.follow("ready again", self.wait_until_ready)

    def restore_to_moment(self) -> None:
        """Archive the WAL, lose the database and the secrets, and restore them to a moment."""
        commands = self.commands("pgbackrest")
        commands = commands.replace("apt-get install", "apt-get install --quiet --yes")
        self.follow("pgbackrest", lambda: self.debian.run(f"{NO_QUESTIONS}\n{commands}"))
        first = self.commands("first full backup")
        self.follow("first full backup", lambda: self.debian.run(first))
        self.ask_database("CREATE TABLE marks (name text)")
        self.ask_database("INSERT INTO marks VALUES ('before')")
        time.sleep(2)  # pgbackrest knows the end of a backup to the second
        moment = self.ask_database("SELECT clock_timestamp()")
        self.ask_database("INSERT INTO marks VALUES ('after')")
        segment = self.ask_database("SELECT pg_walfile_name(pg_switch_wal())")
        archived = "SELECT last_archived_wal FROM pg_stat_archiver"
        self.wait_for("the archive", lambda: self.ask_database(archived) >= segment)
        self.debian.run(
            "kill -9 $(head -1 /var/lib/postgresql/15/main/postmaster.pid)\n"
            "rm -rf /etc/opsportal\n"
            "find /var/lib/postgresql/15/main -mindepth 1 -delete"
        )
        secrets = self.commands("restore of secrets")
        self.follow("restore of the secrets", lambda: self.debian.run(secrets))
        commands = self.commands("restore to a moment").replace(EXAMPLE_MOMENT, moment)
        self.follow("restore to a moment", lambda: self.debian.run(commands))
        self.check("SELECT string_agg(name, ' ') FROM marks", "before")
        # The restore of the dump has put production on hold before; this one is noted, too.
        newest = "SELECT timeline, state_at < now() FROM submission_knowndatabase"
        self.check(f"{newest} ORDER BY id DESC LIMIT 1", "2|t")
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Wait until the portal is ready, as the guide asks it."""
        ask = self.commands("nginx").split("\n")[-1]
        self.wait_for("the portal to be ready", lambda: self.succeeds(ask))

    def check(self, query: str, expected: str) -> None:
        """Raise `CommandFailed` if the database answers something else."""
        answer = self.ask_database(query)
        if answer != expected:
            raise CommandFailed(f"{query}\nyields {answer!r}, not {expected!r}")

    def ask_database(self, query: str) -> str:
        # The user postgres may not enter root's directory, and would say so.
        command = f'cd /; runuser -u postgres -- psql -Atc "{query}" opsportal'
        return self.debian.run(command).strip()

    def wait_for(self, what: str, is_there: Callable[[], bool], *, seconds: int = 300) -> None:
        until = time.monotonic() + seconds
        while not is_there():
            if time.monotonic() > until:
                state = self.debian.run(
                    "systemctl list-units --no-pager --all 'opsportal*' || true\n"
                    "journalctl --no-pager --lines=60 --unit='opsportal*' || true"
                )
                raise CommandFailed(f"{what} did not come within {seconds} s\n{state}")
            time.sleep(1)

    def succeeds(self, command: str) -> bool:
        try:
            self.debian.run(command)
        except CommandFailed:
            return False
        return True

"""The commands. Each makes the calls of one task and shows what the portal answers."""

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem, get_completion_class

from opsctl import __version__
from opsctl.output import clean, show_facts, show_json, show_rows
from opsctl.portal import ADVISED_AGAINST, NOT_YET, REFUSED, Failed, Portal

F = TypeVar("F", bound=Callable[..., Any])
connected = click.make_pass_decorator(Portal)
as_json = click.option("--json", "as_json", is_flag=True, help="Print what the API returns.")
limited = click.option(
    "--limit", default=50, show_default=True, type=click.IntRange(1, 100_000), help="Rows to show."
)
#: States of a service in which jobs can use it.
_USABLE = {"up", "degraded"}


def repeated(*names: str) -> Callable[[F], F]:
    """Add options that can be given several times; a row matches any of the values."""

    def add(command: F) -> F:
        for name in reversed(names):
            command = click.option(f"--{name.replace('_', '-')}", name, multiple=True)(command)
        return command

    return add


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--url", envvar="OPSPORTAL_URL", help="Address of the portal. [OPSPORTAL_URL]")
@click.option(
    "--token", envvar="OPSPORTAL_TOKEN", default="", help="API token; better in OPSPORTAL_TOKEN."
)
@click.version_option(__version__, prog_name="opsctl")
@click.pass_context
def main(context: click.Context, url: str | None, token: str) -> None:
    """Requests, jobs, verdicts, the archive and services of an opsportal."""
    if context.obj is None and context.invoked_subcommand != "completion":
        if not url:
            raise click.UsageError("Set OPSPORTAL_URL to the address of the portal, or use --url.")
        context.obj = Portal(url, token)


def _keys(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the key of a request from the portal; nothing while it cannot be asked."""
    given = context.find_root().params
    try:
        portal = Portal(given.get("url") or "", given.get("token") or "")
        rows = portal.rows("requests/", limit=20, text=incomplete)
        return [
            CompletionItem(row["key"], help=row["title"])
            for row in rows
            if row["key"].startswith(incomplete.upper())
        ]
    except Failed:
        return []


of_request = click.argument("key", shell_complete=_keys)


@main.group()
def requests() -> None:
    """Production requests."""


@requests.command("list")
@repeated("state", "experiment", "campaign", "attention", "text")
@click.option("--mine", is_flag=True, help="Your own requests.")
@click.option("--ordering", help="created_at or deadline, with - reversed.")
@limited
@as_json
@connected
def list_requests(portal: Portal, /, limit: int, as_json: bool, mine: bool, **filters: Any) -> None:
    """List requests, newest first."""
    rows = portal.rows("requests/", limit=limit, mine="true" if mine else None, **filters)
    columns = (
        "key",
        "state",
        "priority_class",
        "rank",
        "part_done",
        "deadline",
        "expected_end",
        "title",
    )
    show_rows(rows, columns, as_json=as_json)


@requests.command()
@as_json
@connected
def campaigns(portal: Portal, as_json: bool) -> None:
    """List campaigns with the totals of their requests."""
    columns = (
        "name",
        "experiment",
        "requests",
        "open",
        "done",
        "attention",
        "jobs",
        "part_done",
        "expected_end",
    )
    show_rows(portal.get("campaigns/"), columns, as_json=as_json)


@requests.command()
@of_request
@as_json
@connected
def status(portal: Portal, key: str, as_json: bool) -> None:
    """Show state, forecast and progress of a request."""
    found, progress = portal.get(f"requests/{key}/"), portal.get(f"progress/{key}/")
    if as_json:
        show_json({"request": found, "progress": progress})
        return
    found["attention"] = [each["words"] for each in found["attention"]]
    facts = (
        "key",
        "title",
        "campaign",
        "state",
        "attention",
        "priority_class",
        "rank",
        "deadline",
        "expected_start",
    )
    show_facts(found, (*facts, "expected_end", "forecast_basis"), as_json=False)
    click.echo()
    columns = ("stage", "jobs_requested", "done", "running", "queued", "failed", "expected_end")
    show_rows(progress["stages"], columns, as_json=False)


@requests.command()
@click.argument("file", type=click.File("rb"))
@as_json
@connected
def create(portal: Portal, file: Any, as_json: bool) -> None:
    """Create a draft from YAML and print its key; `-` reads standard input."""
    made = portal.upload("requests/import/", file.read(), "application/yaml")
    show_json(made) if as_json else click.echo(made["key"])


@requests.command("yaml")
@of_request
@connected
def show_yaml(portal: Portal, key: str) -> None:
    """Print a request as YAML, as `create` takes it."""
    sys.stdout.buffer.write(portal.text(f"requests/{key}/yaml/"))


@requests.command()
@of_request
@as_json
@connected
def check(portal: Portal, key: str, as_json: bool) -> None:
    """Show the checks of a request; exit code 1 if one prevents its submission."""
    found = portal.change(f"requests/{key}/check/")
    if as_json:
        show_json(found)
    else:
        show_rows(found["findings"], ("severity", "path", "message"), as_json=False)
    if any(each["blocks"] for each in found["findings"]):
        raise SystemExit(REFUSED)


def _move(name: str, words: str) -> None:
    @requests.command(name, help=words)
    @of_request
    @click.option("--reason", help="Why; some moves need one.")
    @as_json
    @connected
    def move(portal: Portal, key: str, reason: str | None, as_json: bool) -> None:
        moved = portal.change(f"requests/{key}/{name}/", {"reason": reason})
        show_json(moved) if as_json else click.echo(f"{moved['key']}: {moved['state']}")


for _name, _words in {
    "submit": "Submit a draft for approval.",
    "approve": "Sign a request for your groups; the last signature approves it.",
    "request-changes": "Return a request to its liaisons.",
    "reject": "Reject a request.",
    "reopen": "Reopen a rejected request: checks and signatures start over.",
    "start": "Start production.",
    "hold": "Put a request on hold: no new jobs start.",
    "release": "Release a request from hold.",
    "cancel": "Cancel a request.",
}.items():
    _move(_name, _words)


@requests.command()
@of_request
@click.option(
    "--state",
    "states",
    multiple=True,
    required=True,
    help="State to wait for; several: any of them.",
)
@click.option("--timeout", default=3600, show_default=True, help="Seconds.")
@click.option(
    "--every", default=15, show_default=True, type=click.IntRange(1), help="Seconds between calls."
)
@connected
def wait(portal: Portal, key: str, states: tuple[str, ...], timeout: int, every: int) -> None:
    """Wait until a request is in a state; exit code 7 if it is not in time."""
    until = time.monotonic() + timeout
    while (state := portal.get(f"requests/{key}/")["state"]) not in states:
        if time.monotonic() + every > until:
            raise Failed(f"{key} is still {state}.", NOT_YET)
        time.sleep(every)
    click.echo(f"{key}: {state}")


@main.group()
def jobs() -> None:
    """Finished jobs."""


@jobs.command("list")
@repeated(
    "request",
    "stage",
    "state",
    "experiment",
    "cluster",
    "host",
    "user",
    "account",
    "job",
    "exit_code",
)
@limited
@as_json
@connected
def list_jobs(portal: Portal, /, limit: int, as_json: bool, **filters: Any) -> None:
    """List finished jobs, most recently collected first."""
    columns = (
        "id",
        "job_id",
        "cluster",
        "state",
        "exit_code",
        "request",
        "stage",
        "host",
        "ended_at",
    )
    show_rows(portal.rows("jobs/", limit=limit, **filters), columns, as_json=as_json)


@jobs.command("show")
@click.argument("job", type=int)
@as_json
@connected
def show_job(portal: Portal, job: int, as_json: bool) -> None:
    """Show one job by the portal's ID (the column `id`)."""
    found = portal.get(f"jobs/{job}/")
    show_facts(found, [name for name in found if name != "submit_line"], as_json=as_json)


@main.command()
@click.argument("job", type=int)
@click.option("--lines", default=50, show_default=True, type=click.IntRange(1, 500))
@click.option(
    "--stream", type=click.Choice(["stdout", "stderr"]), help="Default: that of the cause."
)
@as_json
@connected
def logs(portal: Portal, job: int, lines: int, stream: str | None, as_json: bool) -> None:
    """Print the end of a job's log, by the portal's ID of the job."""
    found = portal.get(f"jobs/{job}/log/", lines=lines, stream=stream)
    if as_json:
        show_json(found)
        return
    if found["problem"]:
        click.echo(found["problem"], err=True)
    for line in found["lines"]:
        marked = f"   ← {line['known_error']}" if line["known_error"] else ""
        click.echo(clean(line["text"]) + marked)


@main.group()
def verdicts() -> None:
    """Why jobs failed, and what to do."""


@verdicts.command("list")
@repeated("request", "verdict", "cause", "service", "experiment", "cluster")
@limited
@as_json
@connected
def list_verdicts(portal: Portal, /, limit: int, as_json: bool, **filters: Any) -> None:
    """List verdicts on failed jobs, newest first."""
    columns = ("job", "job_id", "verdict", "advice", "service", "cause", "summary")
    show_rows(portal.rows("verdicts/", limit=limit, **filters), columns, as_json=as_json)


@verdicts.command("show")
@click.argument("job", type=int)
@as_json
@connected
def show_verdict(portal: Portal, job: int, as_json: bool) -> None:
    """Show the verdict on one job, with its reasons and evidence."""
    found = portal.get(f"verdicts/{job}/")
    facts = (
        "job_id",
        "cluster",
        "verdict",
        "advice",
        "confidence",
        "service",
        "cause",
        "summary",
        "later_state",
    )
    show_facts(found, facts, as_json=as_json)
    if not as_json:
        for reason in found["reasons"]:
            click.echo(clean(f"- {reason['text']}"))


@main.group()
def archive() -> None:
    """Scripts and environments of jobs, as they lay in the spool."""


@archive.command()
@click.argument("words", nargs=-1)
@repeated("request", "stage", "user", "account", "cluster", "job", "name", "state")
@click.option("--since", help="Submitted from this day on, such as 2026-11-20.")
@click.option("--until", help="Submitted until this day.")
@limited
@as_json
@connected
def search(
    portal: Portal, /, words: tuple[str, ...], limit: int, as_json: bool, **filters: Any
) -> None:
    """Find archived jobs with all these words in their scripts; `gromacs/20*` matches a prefix."""
    columns = ("id", "job_id", "cluster", "request", "stage", "user", "state", "submitted_at")
    show_rows(
        portal.rows("archive/", limit=limit, words=" ".join(words), **filters),
        columns,
        as_json=as_json,
    )


@archive.command()
@click.argument("job", type=int)
@connected
def script(portal: Portal, job: int) -> None:
    """Print the archived script of a job, byte by byte."""
    sys.stdout.buffer.write(portal.text(f"archive/{job}/script/"))


@archive.command()
@click.argument("job", type=int)
@connected
def environment(portal: Portal, job: int) -> None:
    """Print the archived environment of a job, a variable a line."""
    stored = portal.text(
        f"archive/{job}/environment/"
    )  # separated by NUL, after a number in Slurm's spool
    variables = [part for part in stored.split(b"\0") if part.partition(b"=")[0] and b"=" in part]
    sys.stdout.buffer.write(b"".join(variable + b"\n" for variable in variables))


@main.command()
@as_json
@connected
def services(portal: Portal, as_json: bool) -> None:
    """List services with their states."""
    show_rows(portal.get("services/"), ("slug", "name", "state", "since", "cause"), as_json=as_json)


@main.command()
@click.option("--experiment", help="Announcements of this experiment, and of all.")
@as_json
@connected
def advice(portal: Portal, experiment: str | None, as_json: bool) -> None:
    """Say whether to submit jobs now; exit code 6 if not."""
    now = datetime.now(UTC)
    against = [
        announcement
        for announcement in portal.rows("announcements/", limit=1000)
        if announcement["do_not_submit"]
        and _is_current(announcement, now)
        and _concerns(announcement, experiment)
    ]
    unusable = [row for row in portal.get("services/") if row["state"] not in _USABLE]
    if as_json:
        show_json({"do_not_submit": against, "services": unusable})
    else:
        for announcement in against:
            click.echo(clean(f"Do not submit: {announcement['title']}"))
        for row in unusable:
            click.echo(clean(f"{row['name']} is {row['state']}. {row['advice']}").rstrip())
        if not against and not unusable:
            click.echo("Submit: all services work.")
    if against:
        raise SystemExit(ADVISED_AGAINST)


def _is_current(announcement: dict[str, Any], now: datetime) -> bool:
    start, end = announcement["starts_at"], announcement["ends_at"]
    begun = start is None or datetime.fromisoformat(start) <= now
    return (
        announcement["withdrawn_at"] is None
        and begun
        and (end is None or now < datetime.fromisoformat(end))
    )


def _concerns(announcement: dict[str, Any], experiment: str | None) -> bool:
    return (
        not (experiment and announcement["experiments"])
        or experiment in announcement["experiments"]
    )


@main.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell: eval "$(opsctl completion bash)"."""
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"No completion for {shell}.")
    click.echo(kind(main, {}, "opsctl", "_OPSCTL_COMPLETE").source())

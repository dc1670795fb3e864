"""The meanings of error messages of operating systems, protocols and common libraries.

Each row of `messages.csv` has an ID, the category of the failure, the component that reports it,
its role in the causal chain, and a regex in RE2's syntax that ignores case. The meaning of a
failure at a path depends on the owner of the path.
"""

import csv
import re
from dataclasses import dataclass, replace
from pathlib import Path

import re2

from apps.diagnosis.engine.evidence.exit_codes import shipped
from apps.diagnosis.engine.evidence.matchers import SET_MEMORY_BYTES, latin_options
from apps.diagnosis.enums import Category, CodeScope, Role


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a message means. `id` is the ID of the known error that it is shown as."""

    id: str
    category: Category
    service: str
    role: Role


#: Mounts of a site. If a mount, a repository in it, or a repository's setup is missing, it is not
#: mounted. A missing path below is the job's own mistake.
SITE_MOUNTS = ("cvmfs", "pnfs", "eos", "afs", "dcache", "stash", "osdf", "gpfs", "lustre")
NOT_MOUNTED = re.compile(
    rf"(?<![\w.])/(?:{'|'.join(SITE_MOUNTS)})(?:/[\w.\-]{{0,80}})?/?['\":\s]"
    rf"|/cvmfs/\S{{1,200}}/setups?(?:\.sh)?\b"
)
FILE = frozenset({"MISSING-FILE", "UNREADABLE-FILE"})
#: Words of messages that only guess or explain.
HEDGE = re.compile(r"(?i)\b(?:might|may|usually|possibly|perhaps|could have been)\b")
#: Commands whose complaints about a file rarely end a job.
CHORES = re.compile(
    r"(?:rm|rmdir|mkdir|ls|ln|chmod|chgrp|touch|which|stty|tput|conda|module|alias): "
    r".{0,300}(?:[Ff]ile|[Pp]erm)"
    r"|(?:-?\w{1,10}: )?\S{1,200}/\.?(?:bash|z|c|tcsh?|k)?(?:rc|profile|login|_profile)\b:? "
    r"(?:line )?\d"
)
#: Files requested from a server.
REMOTE = re.compile(r"(?:root|davs|srm|gsiftp|xroot)://|\bXrd: ")
PROGRAM_EXIT = re.compile(r"(?P<program>[\w.\-]{1,40}): exit status (?P<status>\d{1,3})$")
LOCAL_HOSTS = re.compile(r"\b(?:localhost|127\.0\.0\.1|0\.0\.0\.0|::1)\b")


def _load() -> tuple[tuple[Meaning, ...], re2.Set]:
    """Read the table: the meaning of each row, and a matcher for all rows."""
    meanings = []
    matcher = re2.Set.SearchSet(latin_options(SET_MEMORY_BYTES))
    with Path(__file__).with_name("messages.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            meanings.append(
                Meaning(row["id"], Category(row["category"]), row["service"], Role(row["role"]))
            )
            matcher.Add(f"(?i){row['regex']}")
    matcher.Compile()
    return tuple(meanings), matcher


MEANINGS, _MATCHER = _load()


def meanings_of(message: str) -> list[Meaning] | None:
    """Return the possible meanings of a message in table order; None if it says it is harmless."""
    if ended := PROGRAM_EXIT.match(message):
        by_code = []
        for code in shipped():
            if (code.scope, code.name, code.number) == (
                CodeScope.PROGRAM,
                ended["program"],
                int(ended["status"]),
            ) and code.category is not Category.UNKNOWN:
                by_code.append(
                    Meaning(f"EXIT-{code.name.upper()}", code.category, code.name, Role.SYMPTOM)
                )
        return by_code
    meanings = []
    for index in sorted(_MATCHER.Match(message.encode("latin-1", "replace")) or ()):
        meanings.append(MEANINGS[index])
    if any(meaning.role is Role.NOISE for meaning in meanings):
        return None
    return [about(meaning, message) for meaning in meanings]


def about(meaning: Meaning, message: str) -> Meaning:
    """Adjust a meaning to the file or host that the message names, and to hedging words in it."""
    if meaning.id in FILE and NOT_MOUNTED.search(message):
        return replace(
            meaning, id="SITE-FILE", category=Category.SITE, service="storage", role=Role.GENERIC
        )
    if meaning.id in FILE and REMOTE.search(message):
        return replace(
            meaning,
            id="REMOTE-FILE",
            category=Category.SERVICE,
            service="storage",
            role=Role.GENERIC,
        )
    if meaning.id in {"CONNECTION", "HTTP-SERVICE"} and LOCAL_HOSTS.search(message):
        return replace(
            meaning,
            id="LOCAL-CONNECTION",
            category=Category.EXPERIMENT_CODE,
            service="program",
            role=Role.SYMPTOM,
        )
    if meaning.role is Role.GENERIC and (HEDGE.search(message) or CHORES.match(message)):
        return replace(meaning, role=Role.CONSEQUENCE)
    return meaning

"""The description archived with a script: the job ads and, if available, the submit description."""

import re
from collections.abc import Iterable, Mapping

from apps.clusters.schedulers.htcondor.classads import line_of, quoted, unquoted
from apps.clusters.schedulers.htcondor.environment import (
    Variable,
    read_v1,
    read_v2,
    write_v1,
    write_v2,
)
from apps.clusters.schedulers.htcondor.queue_log import JobCluster

# Secrets of the schedd, and the arguments, which are archived separately with secrets masked.
_LEFT_OUT = re.compile(
    rb"capability|childclaimids|claimid|claimidlist|claimids|transferkey|_condor_priv.*|args"
    rb"|arguments"
)
_ENVIRONMENT = re.compile(rb"(?i)[ \t]*(environment|env)[ \t]*=[ \t]*(.*)")
_DELIMITER = re.compile(rb'(?mi)^EnvDelim = "(.)"')
_FIRST_FILE = b"\n# condor_submit."
# Variables times bytes. The limit prevents one job from blocking capture.
_MOST_COMPARED = 200_000_000
# Shorter secrets are replaced only in the environment: elsewhere they may be ordinary text.
_LONG_ENOUGH = 6


def describe(cluster: JobCluster, files: Mapping[str, bytes]) -> bytes:
    """Return the ads of a cluster and its first job, and `files`, each below a heading."""
    parts = [f"# cluster {cluster.number}".encode(), *_lines(cluster.common)]
    if cluster.first_proc is not None:
        parts += [
            f"# job {cluster.number}.{cluster.first_proc}: what differs".encode(),
            *_lines(cluster.first),
        ]
    for name, content in files.items():
        parts += [f"# {name}".encode(), content.rstrip(b"\n")]
    return b"\n".join([*parts, b""])


def _lines(ad: Mapping[bytes, bytes]) -> list[bytes]:
    lines = []
    for name in sorted(ad):
        if not _LEFT_OUT.fullmatch(name):
            lines.append(ad[name])
    return lines


def with_values(description: bytes, before: Iterable[Variable], after: Iterable[Variable]) -> bytes:
    """Replace old values of variables by new ones throughout a description."""
    old = dict(before)
    new = dict(after)
    changed = {name: new[name] for name in old if name in new and new[name] != old[name]}
    if not changed:
        return description

    ads, header, files = description.partition(_FIRST_FILE)
    delimiter_match = _DELIMITER.search(ads)
    delimiter = delimiter_match[1] if delimiter_match else b";"
    ad_lines = [_ad_line(line, changed, delimiter) for line in ads.split(b"\n")]
    commands = [_command(line, changed) for line in files.split(b"\n")]
    text = b"\n".join(ad_lines) + header + b"\n".join(commands)
    if len(changed) * len(text) > _MOST_COMPARED:
        return b"# left out: too many secrets to look for\n"

    for name, value in changed.items():
        for spelling in _spellings(old[name]):
            if len(spelling) >= _LONG_ENOUGH:
                text = text.replace(spelling, value)
    return text


def _spellings(value: bytes) -> set[bytes]:
    """Return the spellings of a value in the possible contexts of quotes."""
    spellings = set()
    for text in (value, value.replace(b"'", b"''")):
        for double_quote in (b'"', b'\\"', b'""'):
            spellings.add(text.replace(b'"', double_quote))
    return spellings


def _ad_line(line: bytes, changed: Mapping[bytes, bytes], delimiter: bytes) -> bytes:
    """Return a line of an ad, with changed variables if it is the environment."""
    match = _ENVIRONMENT.fullmatch(line)
    text = unquoted(match[2]) if match else None
    if not match or text is None:
        return line
    is_new = match[1].lower() == b"environment"
    written = _replaced(text, changed, None if is_new else delimiter)
    return line if written is None else line_of(match[1], quoted(written))


def _command(line: bytes, changed: Mapping[bytes, bytes]) -> bytes:
    """Return a line of a submit description, with changed variables if it is the environment.

    Double quotes mark the new syntax.
    """
    match = _ENVIRONMENT.fullmatch(line)
    if not match:
        return line

    value = match[2].rstrip()
    if not value.startswith(b'"'):
        written = _replaced(value, changed, b";")
        return line if written is None else line_of(match[1], written)

    written = _replaced(value[1:-1].replace(b'""', b'"'), changed, None)
    if written is None:
        return line
    return line_of(match[1], b'"' + written.replace(b'"', b'""') + b'"')


def _replaced(text: bytes, changed: Mapping[bytes, bytes], delimiter: bytes | None) -> bytes | None:
    """Replace values in an environment; return None if nothing changes.

    Without a `delimiter`, the environment has the new syntax.
    """
    try:
        if delimiter is None:
            variables = read_v2(text)
        else:
            variables = read_v1(text, delimiter)
    except ValueError:
        return b"<masked>"
    if not changed.keys() & {name for name, _ in variables}:
        return None
    variables = [(name, changed.get(name, value)) for name, value in variables]
    if delimiter is None:
        return write_v2(variables)
    return write_v1(variables, delimiter)

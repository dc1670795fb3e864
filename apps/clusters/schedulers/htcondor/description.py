"""What is archived of a submission beside its script: the ads, and the submit description where the schedd has it."""

import re
from collections.abc import Iterable, Mapping

from apps.clusters.schedulers.htcondor.classads import line_of, quoted, unquoted
from apps.clusters.schedulers.htcondor.environment import Variable, read_v1, read_v2, write_v1, write_v2
from apps.clusters.schedulers.htcondor.queue_log import Cluster

# The schedd's own secrets, and the arguments, which are archived apart, with users' secrets masked.
_LEFT_OUT = re.compile(
    rb"capability|childclaimids|claimid|claimidlist|claimids|transferkey|_condor_priv.*|args|arguments"
)
_ENVIRONMENT = re.compile(rb"(?i)[ \t]*(environment|env)[ \t]*=[ \t]*(.*)")
_DELIMITER = re.compile(rb'(?mi)^EnvDelim = "(.)"')
_LONG_ENOUGH = 6  # shorter secrets are replaced in the environment alone: elsewhere they may mean something else


def describe(cluster: Cluster, files: Mapping[str, bytes]) -> bytes:
    """Write the ads of a cluster and its first job, and `files`, each under a line that names it."""
    parts = [f"# cluster {cluster.number}".encode(), *_lines(cluster.common)]
    if cluster.first_proc is not None:
        parts += [f"# job {cluster.number}.{cluster.first_proc}: what differs".encode(), *_lines(cluster.first)]
    for name, content in files.items():
        parts += [f"# {name}".encode(), content.rstrip(b"\n")]
    return b"\n".join([*parts, b""])


def _lines(ad: Mapping[bytes, bytes]) -> list[bytes]:
    return [ad[name] for name in sorted(ad) if not _LEFT_OUT.fullmatch(name)]


def with_values(description: bytes, before: Iterable[Variable], after: Iterable[Variable]) -> bytes:
    """Put new values of variables in the place of old ones wherever the description has them."""
    old, new = dict(before), dict(after)
    changed = {name: new[name] for name in old if name in new and new[name] != old[name]}
    if not changed:
        return description
    found = _DELIMITER.search(description)
    delimiter = found[1] if found else b";"
    text = b"\n".join(_rewritten(line, changed, delimiter) for line in description.split(b"\n"))
    for name, value in changed.items():
        for written in {old[name], old[name].replace(b"'", b"''"), old[name].replace(b'"', b'\\"')}:
            if len(written) >= _LONG_ENOUGH:
                text = text.replace(written, value)
    return text


def _rewritten(line: bytes, changed: Mapping[bytes, bytes], delimiter: bytes) -> bytes:
    """Write the line of an ad or a submit description anew if it sets the environment."""
    found = _ENVIRONMENT.fullmatch(line)
    if not found:
        return line
    name, value = found[1], found[2].rstrip()
    is_ad = line.startswith(name + b" = ") and unquoted(value) is not None
    text = unquoted(value) if is_ad else None
    new_syntax = name.lower() == b"environment" if is_ad else value.startswith(b'"')
    if text is None:
        text = value[1:-1].replace(b'""', b'"') if new_syntax else value
    try:
        variables = read_v2(text) if new_syntax else read_v1(text, delimiter)
    except ValueError:
        return line_of(name, b"<masked>")
    if not changed.keys() & {key for key, _ in variables}:
        return line
    variables = [(key, changed.get(key, held)) for key, held in variables]
    written = write_v2(variables) if new_syntax else write_v1(variables, delimiter)
    if is_ad:
        return line_of(name, quoted(written))
    return line_of(name, b'"' + written.replace(b'"', b'""') + b'"' if new_syntax else written)

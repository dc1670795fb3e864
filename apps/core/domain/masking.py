"""Keeps secrets out of what is stored: values of variables that hold one become a keyed fingerprint.

Two equal values have equal fingerprints, so that they can be compared; none can be turned back without the key.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import re2

Variable = tuple[bytes, bytes]

# A path says where a secret lies, and is none itself: only under names that speak of a file, or of no secret.
_PATH = re.compile(rb"(FILE:)?(~|\.{0,2})/[^\s;]*")
_NAMES_OF_PATHS = re.compile(r"(?i)(file|path|dir|directory|home|sock|socket|cache|store|proxy|credentials?|creds)$")
_HARMLESS = re.compile(r"(?i)^(SLURM_(?!JWT)|SBATCH_|TOKENIZERS_)")
_NAME = re.compile(r"\b([A-Za-z_]\w*)=")  # in a command line, such as two in `--export=NAME=value`
_QUOTED_OR_WORD = re.compile(r"""(?s)(["'])(.*?)\1|[^\s,;]+""")
_PLAIN = re.compile(r"[^\s,;=]++(?=[\s,;]|$)")
_MASKED = re.compile(r"<masked:[0-9a-f]{16}>")
_MASKED_BYTES = re.compile(rb"<masked:[0-9a-f]{16}>")
_SHORTEST_REPLACED = 8  # shorter values mean other things elsewhere
_SHORTEST_PLAIN = 16  # the same of letters or digits alone, such as words and dates
_MOST_COMPARED = 100_000_000  # secrets by bytes of a text: no job may keep capture busy
_MOST_NAMES = 10_000
_MOST_SECRETS = 200  # of one command line
_LONGEST_KEPT_NAME = 256


@dataclass(frozen=True, slots=True)
class Rule:
    """One more thing to mask: variables whose name, or whose value, a pattern in RE2's syntax finds."""

    applies_to: Literal["name", "value"]
    pattern: str

    def __post_init__(self) -> None:
        """Raises `ValueError` where the pattern is none, or would mask everything."""
        try:
            pattern = re2.compile(self.pattern.encode(), _options())
        except re2.error as error:
            raise ValueError(f"is no regular expression: {error.args[0].decode(errors='replace')}") from error
        if pattern.search(b""):
            raise ValueError("finds an empty text, and so everything")


class Masker:
    """Masks by the patterns above and `names`, a regular expression, unless that is empty; and by `rules`."""

    def __init__(self, *, names: str, key: bytes, rules: Sequence[Rule] = ()) -> None:
        self._names = re.compile(names) if names else None
        self._rule_names = _compile([rule.pattern for rule in rules if rule.applies_to == "name"])
        self._rule_values = _compile([rule.pattern for rule in rules if rule.applies_to == "value"])
        self._key = hashlib.sha256(b"opsportal masking" + key).digest()
        self._names_judged: dict[bytes, str] = {}

    def may_find(self, environment: bytes, texts: Sequence[bytes]) -> bool:
        """Whether to look for secrets at all among `texts`, which are `NAME=value` cut out of `environment`."""
        judged = self._names_judged
        try:
            suspects = [text for text in texts if judged[text.partition(b"=")[0]]]
        except KeyError:
            suspects = [text for text in texts if self._is_secret_name(text.partition(b"=")[0])]
        if suspects or self._rule_values is not None:
            return True
        return self._names is not None and SECRET_HINT.search(environment) is not None

    def mask(self, variables: Sequence[Variable]) -> tuple[tuple[Variable, ...], tuple[str, ...]]:
        """Return the variables with secrets masked, and the names of those that were."""
        values = b"\0".join([value for _, value in variables])
        hinted = self._names is not None and SECRET_HINT.search(values) is not None
        judged = self._names_judged
        try:
            suspects = [index for index, (name, _) in enumerate(variables) if judged[name]]
        except KeyError:
            suspects = [index for index, (name, _) in enumerate(variables) if self._is_secret_name(name)]
        secret = {
            index
            for index in (suspects if self._rule_values is None else range(len(variables)))
            if self._is_secret(*variables[index])
        }
        if hinted:
            secret.update([index for index, (_, value) in enumerate(variables) if SECRET_VALUES.search(value)])
        if not secret:
            return tuple(variables), ()
        fingerprints = {variables[index][1]: self.fingerprint(variables[index][1]) for index in secret}
        # Others may hold the same, as SLURM_EXPORT_ENV does; no value holds a NUL.
        others = b"\0".join(b"" if index in secret else value for index, (_, value) in enumerate(variables))
        replaced = replace_secrets(others, fingerprints).split(b"\0")
        masked = tuple(
            (name, fingerprints[value] if index in secret else other)
            for (index, (name, value)), other in zip(enumerate(variables), replaced, strict=True)
        )
        return masked, tuple(
            dict.fromkeys(text(new[0]) for old, new in zip(variables, masked, strict=True) if old != new)
        )

    def mask_text(self, line: str) -> str:
        """Return a command line or comment with its secrets masked, given as `NAME=value` or plain to see."""
        if not line:
            return line
        masked = self._mask_assignments(line).encode("utf-8", "surrogatepass")
        for pattern in [SECRET_VALUES if self._names else None, self._rule_values]:
            if pattern is not None:
                masked = self._mask_matches(pattern, masked)
        return masked.decode("utf-8", "surrogatepass")

    def _mask_matches(self, pattern: "re2._Regexp", line: bytes) -> bytes:
        """Mask what a pattern finds; after many matches the rest of the line, as each search copies all of it."""
        shown, end = [], 0
        for found in islice(pattern.finditer(line), _MOST_SECRETS):
            shown += [line[end : found.start()], self.fingerprint(found[0])]
            end = found.end()
        rest = line[end:]
        is_cut = len(shown) == 2 * _MOST_SECRETS and pattern.search(rest) is not None
        return b"".join((*shown, self.fingerprint(rest) if is_cut else rest))

    def _mask_assignments(self, line: str) -> str:
        """Mask what is given to names: to its closing quote, else to the next blank, comma or semicolon."""
        shown, end, at = [], 0, 0
        for name in _NAME.finditer(line):
            named = self._is_secret_name(name[1].encode())
            given = (_QUOTED_OR_WORD if named else _PLAIN).match(line, name.end()) if name.start() >= at else None
            if given is None or _MASKED.match(given[0]):
                continue
            value = (given[2] if named and given[1] else given[0]).encode("utf-8", "surrogatepass")
            if self._is_secret(name[1].encode(), value):
                shown += [line[end : name.end()], self.fingerprint(value).decode()]
                end = given.end()
            at = given.end()
        return "".join((*shown, line[end:]))

    def fingerprint(self, value: bytes) -> bytes:
        """Return what stands for `value` where it would be stored."""
        digest = hmac.new(self._key, value, hashlib.sha256).hexdigest()[:16]
        return f"<masked:{digest}>".encode()

    def _is_secret(self, name: bytes, value: bytes) -> bool:
        if not value:
            return False
        match self._is_secret_name(name):
            case "rule":
                return True
            case "name" if not (_PATH.fullmatch(value) and _NAMES_OF_PATHS.search(text(name))):
                return True
        return self._rule_values is not None and self._rule_values.search(value) is not None

    def _is_secret_name(self, name: bytes) -> str:
        """Say what finds a name: a `rule`, which holds whatever the value is, or the setting, `name`."""
        if (known := self._names_judged.get(name)) is not None:
            return known
        if len(self._names_judged) >= _MOST_NAMES:
            self._names_judged = {}
        decoded, found = text(name), ""
        if self._rule_names is not None and self._rule_names.search(decoded.encode()):
            found = "rule"
        elif self._names and self._names.search(decoded) and not _HARMLESS.search(decoded):
            found = "name"
        if len(name) <= _LONGEST_KEPT_NAME:
            self._names_judged[name] = found
        return found


def secrets_of(before: Iterable[Variable], after: Iterable[Variable]) -> dict[bytes, bytes]:
    """Return the values that were masked as a whole, with their fingerprints."""
    pairs = zip(before, after, strict=True)
    return {old: new for (_, old), (_, new) in pairs if old != new and _MASKED_BYTES.fullmatch(new)}


def replace_secrets(content: bytes, secrets: Mapping[bytes, bytes]) -> bytes:
    """Return a content with values replaced by their fingerprints, unless they are too short or plain.

    The longest first, as one may hold another. Of more secrets than can be looked for in time, the rest stays.
    """
    found = [value for value in secrets if len(value) >= _shortest(value)]
    found = sorted(found, key=len, reverse=True)[: _MOST_COMPARED // (len(content) + 1)]
    for value in found:
        content = content.replace(value, secrets[value])
    return content


def _shortest(value: bytes) -> int:
    return _SHORTEST_PLAIN if value.isalpha() or value.isdigit() else _SHORTEST_REPLACED


def _compile(patterns: Sequence[str]) -> "re2._Regexp | None":
    joined = "|".join(f"(?:{pattern})" for pattern in patterns)
    return re2.compile(joined.encode(), _options()) if joined else None


def _options() -> re2.Options:
    """RE2 takes linear time whatever the pattern; Latin-1 lets every byte be a character."""
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors = False
    return options


def text(raw: bytes) -> str:
    """Return bytes as text that any store takes; what is no UTF-8 shows as `\\xNN`."""
    return raw.decode("utf-8", "backslashreplace")


def value_of(variables: Iterable[Variable], name: bytes) -> str:
    """Return the value of a variable as text, or an empty one."""
    return next((text(value) for key, value in variables if key == name), "")


# By RE2, in linear time: a value may have 128 kB, and be made to keep a backtracking search busy for minutes.
SECRET_VALUES = re2.compile(
    rb"[A-Za-z][A-Za-z0-9+.-]*://[^\s/:@]*:[^\s/@]+@"  # a URL with a password
    rb"|eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+"  # JSON web token
    rb"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
    rb"|\b(gh[pousr]_[A-Za-z0-9]{20,}|glpat-[A-Za-z0-9_-]{20,}|xox[abprs]-[A-Za-z0-9-]{10,})"
    rb"|\b(sk-[A-Za-z]{2,10}[0-9]{0,2}-[A-Za-z0-9_-]{16,}|sk-[A-Za-z0-9]{32,}|sk_live_[A-Za-z0-9]{16,}|hf_[A-Za-z0-9]{30,})",
    _options(),
)
# Cheap: without it no value is secret.
SECRET_HINT = re2.compile(rb"://|eyJ|PRIVATE KEY|gh[pousr]_|glpat-|xox[abprs]-|\bsk[-_]|\bhf_", _options())

"""Keep secrets out of stored data by replacing them with keyed fingerprints.

Equal values have equal fingerprints, so they can be compared. Without the key, a fingerprint cannot
be reversed.
"""

import hashlib
import hmac
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import re2

from apps.core.domain.secrets.patterns import (
    HARMLESS_NAMES,
    NAMES_OF_PATHS,
    PATH,
    PLACEHOLDER,
    SECRET_HINT,
    SECRET_VALUES,
    latin_options,
    named_secrets_in,
)

Variable = tuple[bytes, bytes]

# A name in a command line, such as both names in `--export=NAME=value`.
_NAME = re.compile(rb"\b([A-Za-z_]\w*)=")
_QUOTED_OR_WORD = re.compile(rb"""(?s)(["'])(.*?)\1|[^\s,;]+""")
_PLAIN = re.compile(rb"[^\s,;=]++(?=[\s,;]|$)")
_MASKED = re.compile(rb"<masked:[0-9a-f]{16}>")
# Shorter values mean other things elsewhere.
_SHORTEST_REPLACED = 8
# The same for values of only letters or only digits, such as words and dates.
_SHORTEST_PLAIN = 16
# Number of secrets times bytes of a text. The limit prevents one job from blocking capture.
_MOST_COMPARED = 100_000_000
_MOST_NAMES = 10_000
# Limit for one command line.
_MOST_SECRETS = 200
_LONGEST_KEPT_NAME = 256


@dataclass(frozen=True, slots=True)
class MaskPattern:
    """An additional rule: a pattern in RE2's syntax for names or values of variables to mask."""

    applies_to: Literal["name", "value"]
    pattern: str

    def __post_init__(self) -> None:
        """Raise `ValueError` if the pattern is invalid or would mask everything."""
        try:
            pattern = re2.compile(self.pattern.encode(), latin_options())
        except re2.error as error:
            raise ValueError(
                f"is not a regular expression: {error.args[0].decode(errors='replace')}"
            ) from error
        if pattern.search(b""):
            raise ValueError("matches an empty text, and so everything")


class Masker:
    """Masks secrets found by the built-in patterns, by `names` and by `rules`.

    `names` is a regular expression for names of variables; "" turns it and the built-in patterns
    off.
    """

    def __init__(self, *, names: str, key: bytes, rules: Sequence[MaskPattern] = ()) -> None:
        self._names = re.compile(names) if names else None
        self._rule_names = _compile([rule.pattern for rule in rules if rule.applies_to == "name"])
        self._rule_values = _compile([rule.pattern for rule in rules if rule.applies_to == "value"])
        self._key = hashlib.sha256(b"opsportal masking" + key).digest()
        self._name_sources: dict[bytes, str] = {}

    @property
    def key_id(self) -> str:
        """16 hexadecimal digits by which the key is recognised, and which do not reveal it."""
        return hmac.new(self._key, b"opsportal masking key id", "sha256").hexdigest()[:16]

    def may_find(self, environment: bytes, texts: Sequence[bytes]) -> bool:
        """Return whether the `NAME=value` entries of `environment` may contain secrets."""
        names = [text.partition(b"=")[0] for text in texts]
        if self._rule_values is not None or self._secret_names_among(names):
            return True
        return self._names is not None and SECRET_HINT.search(environment) is not None

    def mask(self, variables: Sequence[Variable]) -> tuple[tuple[Variable, ...], tuple[str, ...]]:
        """Return the variables with secrets masked, and the names of the masked variables."""
        values = b"\0".join([value for _, value in variables])
        is_hinted = self._names is not None and SECRET_HINT.search(values) is not None
        secret = self._secret_variables(variables, search_values=is_hinted)
        parts: dict[int, bytes] = {}
        if is_hinted or self._rule_names:
            parts = self._mask_parts(variables, secret)
        if not secret and not parts:
            return tuple(variables), ()

        fingerprints = {}
        for index in secret:
            _, value = variables[index]
            fingerprints[value] = self.fingerprint(value)
        masked = _replace_values(variables, secret, parts, fingerprints)
        masked_names = []
        for old, new in zip(variables, masked, strict=True):
            if old != new:
                masked_names.append(text(new[0]))
        return masked, tuple(dict.fromkeys(masked_names))

    def _secret_variables(self, variables: Sequence[Variable], *, search_values: bool) -> set[int]:
        """Return the positions of the variables whose whole values are secret.

        With `search_values`, also of those whose values have the form of a secret.
        """
        candidates: Iterable[int] = range(len(variables))
        if self._rule_values is None:
            candidates = self._secret_names_among([name for name, _ in variables])
        secret = {index for index in candidates if self._is_secret(*variables[index])}
        if search_values:
            for index, (_, value) in enumerate(variables):
                if SECRET_VALUES.search(value):
                    secret.add(index)
        return secret

    def _secret_names_among(self, names: Sequence[bytes]) -> list[int]:
        """Return the positions of the secret names among these."""
        sources = self._name_sources
        try:
            # Nearly all names are known, so look them up without a call for each.
            return [index for index, name in enumerate(names) if sources[name]]
        except KeyError:
            return [index for index, name in enumerate(names) if self._source_of_name(name)]

    def _mask_parts(
        self, variables: Sequence[Variable], secret: Container[int]
    ) -> dict[int, bytes]:
        """Return other values by index, with named secrets in them masked.

        For example, a command line may have secrets in `--export`.
        """
        parts = {}
        for index, (_, value) in enumerate(variables):
            if index in secret or not (self._rule_names or SECRET_HINT.search(value)):
                continue
            masked = self._mask_named(value)
            if masked != value:
                parts[index] = masked
        return parts

    def mask_text(self, line: str) -> str:
        """Return a command line or comment with its secrets masked.

        Secrets are recognised by the name before them or by their form.
        """
        if not line:
            return line
        masked = self._mask_named(line.encode("utf-8", "surrogatepass"))
        for pattern in [SECRET_VALUES if self._names else None, self._rule_values]:
            if pattern is not None:
                masked = self._mask_matches(pattern, masked)
        return masked.decode("utf-8", "surrogatepass")

    def _mask_named(self, line: bytes) -> bytes:
        """Mask the values after names.

        Names of the setting or a rule must be followed by `=`; built-in names may have any form.
        """
        line = self._mask_assignments(line)
        shown = []
        position = 0
        for begin, end in named_secrets_in(line) if self._names else ():
            shown += [line[position:begin], self.fingerprint(line[begin:end])]
            position = end
        return b"".join((*shown, line[position:]))

    def _mask_matches(self, pattern: "re2._Regexp", line: bytes) -> bytes:
        """Mask the matches of a pattern.

        After many matches the rest of the line is masked, because every search copies all of it.
        """
        shown = []
        end = 0
        for match in islice(pattern.finditer(line), _MOST_SECRETS):
            shown += [line[end : match.start()], self.fingerprint(match[0])]
            end = match.end()
        rest = line[end:]
        is_cut = len(shown) == 2 * _MOST_SECRETS and pattern.search(rest) is not None
        return b"".join((*shown, self.fingerprint(rest) if is_cut else rest))

    def _mask_assignments(self, line: bytes) -> bytes:
        """Mask values assigned to names.

        A value ends at its closing quote, or at a blank, comma or semicolon.
        """
        shown = []
        end = 0
        searched_to = 0
        for name in _NAME.finditer(line):
            named = self._source_of_name(name[1])
            assigned = None
            if name.start() >= searched_to:
                value_pattern = _QUOTED_OR_WORD if named else _PLAIN
                assigned = value_pattern.match(line, name.end())
            if assigned is None or _MASKED.match(assigned[0]):
                continue
            value = assigned[2] if named and assigned[1] else assigned[0]
            if self._is_secret(name[1], value) and not PLACEHOLDER.fullmatch(value):
                shown += [line[end : name.end()], self.fingerprint(value)]
                end = assigned.end()
            searched_to = assigned.end()
        return b"".join((*shown, line[end:]))

    def fingerprint(self, value: bytes) -> bytes:
        """Return the fingerprint that is stored in place of `value`."""
        digest = hmac.new(self._key, value, hashlib.sha256).hexdigest()[:16]
        return f"<masked:{digest}>".encode()

    def _is_secret(self, name: bytes, value: bytes) -> bool:
        if not value:
            return False
        match self._source_of_name(name):
            case "rule":
                return True
            case "name" if not (PATH.fullmatch(value) and NAMES_OF_PATHS.search(text(name))):
                return True
        return self._rule_values is not None and self._rule_values.search(value) is not None

    def _source_of_name(self, name: bytes) -> str:
        """Return why a name is secret: a `rule`, the setting `name`, or "".

        A rule holds for any value.
        """
        if (known := self._name_sources.get(name)) is not None:
            return known
        if len(self._name_sources) >= _MOST_NAMES:
            self._name_sources = {}
        decoded = text(name)
        source = ""
        if self._rule_names is not None and self._rule_names.search(decoded.encode()):
            source = "rule"
        elif self._names and self._names.search(decoded) and not HARMLESS_NAMES.search(decoded):
            source = "name"
        if len(name) <= _LONGEST_KEPT_NAME:
            self._name_sources[name] = source
        return source


def _replace_values(
    variables: Sequence[Variable],
    secret: Container[int],
    parts: Mapping[int, bytes],
    fingerprints: Mapping[bytes, bytes],
) -> tuple[Variable, ...]:
    """Return the variables with the values at `secret` positions replaced by their fingerprints.

    Of other variables, `parts` has the values with masked parts. They may contain the same secrets,
    as SLURM_EXPORT_ENV does, which are replaced too.
    """
    others = []
    for index, (_, value) in enumerate(variables):
        others.append(b"" if index in secret else parts.get(index, value))
    # In one text, which is faster than value by value. No value contains a NUL.
    replaced = replace_secrets(b"\0".join(others), fingerprints).split(b"\0")

    masked = []
    for index, (name, value) in enumerate(variables):
        masked.append((name, fingerprints[value] if index in secret else replaced[index]))
    return tuple(masked)


def secrets_of(before: Iterable[Variable], after: Iterable[Variable]) -> dict[bytes, bytes]:
    """Return the values that were masked with their replacements.

    A replacement is a fingerprint or a text that contains fingerprints.
    """
    pairs = zip(before, after, strict=True)
    secrets = {}
    for (_, old), (_, new) in pairs:
        if old != new:
            secrets[old] = new
    return secrets


def replace_secrets(content: bytes, secrets: Mapping[bytes, bytes]) -> bytes:
    """Replace secrets in a content, unless they are too short or too plain.

    The longest come first, because one may contain another. If there are more secrets than can be
    searched in time, the shortest are kept.
    """
    long_enough = [value for value in secrets if len(value) >= _shortest(value)]
    longest_first = sorted(long_enough, key=len, reverse=True)
    for value in longest_first[: _MOST_COMPARED // (len(content) + 1)]:
        content = content.replace(value, secrets[value])
    return content


def _shortest(value: bytes) -> int:
    if value.isalpha() or value.isdigit():
        return _SHORTEST_PLAIN
    return _SHORTEST_REPLACED


def _compile(patterns: Sequence[str]) -> "re2._Regexp | None":
    joined = "|".join(f"(?:{pattern})" for pattern in patterns)
    if not joined:
        return None
    return re2.compile(joined.encode(), latin_options())


def text(raw: bytes) -> str:
    """Return bytes as text that any store accepts; invalid UTF-8 is shown as `\\xNN`."""
    return raw.decode("utf-8", "backslashreplace")


def value_of(variables: Iterable[Variable], name: bytes) -> str:
    """Return the value of a variable as text; "" if it is not set."""
    return next((text(value) for key, value in variables if key == name), "")

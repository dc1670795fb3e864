"""How jobs are sent to a cluster: its options, as an admin writes them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,:@+-]{0,99}")
_PATH = re.compile(r"/[^\0-\x1f]{0,300}")
MAX_ARRAY = 100_000
MAX_TEST_EVENTS = 100
_NUMBERS = {
    "array_size": (1, MAX_ARRAY),
    "most_in_flight": (1, 10**7),
    "most_at_once": (0, 10**7),
    "experiment_in_flight": (0, 10**7),
    "test_events": (0, MAX_TEST_EVENTS),
    "retries": (0, 10),
}


@dataclass(frozen=True, kw_only=True)
class SubmissionOptions:
    """`accounts` are by experiment and come before `account`; empty texts and zeros are not asked for.

    `experiments` are those whose requests start here by themselves, empty for all. `in_flight` is by experiment, and
    comes before `experiment_in_flight`; 0 is no limit.
    """

    partition: str = ""
    qos: str = ""
    account: str = ""
    accounts: Mapping[str, str] = field(default_factory=dict)
    directory: str = ""
    output: str = ""
    array_size: int = 1000
    most_in_flight: int = 10_000
    most_at_once: int = 0
    automatic: bool = True
    experiments: Sequence[str] = ()
    experiment_in_flight: int = 0
    in_flight: Mapping[str, int] = field(default_factory=dict)
    test_events: int = 100
    retries: int = 2

    def limit_of(self, experiment: str) -> int:
        """Return the most jobs in flight of one experiment."""
        return min(
            self.in_flight.get(experiment, self.experiment_in_flight) or self.most_in_flight, self.most_in_flight
        )

    def account_of(self, experiment: str) -> str:
        return self.accounts.get(experiment, self.account)


def read_options(values: Any) -> SubmissionOptions:
    """Raises `ValueError` with every problem."""
    if problems := problems_of_options(values):
        raise ValueError(" ".join(problems))
    return SubmissionOptions(**values)


def problems_of_options(values: Any) -> list[str]:
    """Return what is wrong with the options, in words."""
    if not isinstance(values, dict):
        return ["Write an object: names with values."]
    known = SubmissionOptions.__dataclass_fields__
    problems = [f"{name!r} is not known; known are: {', '.join(known)}." for name in values if name not in known]
    problems += [
        f"{name}: letters, digits and _ . , : @ + - only."
        for name in ("partition", "qos", "account")
        if values.get(name, "") != "" and not _is_word(values[name])
    ]
    problems += [f"{name}: an absolute path." for name in ("directory", "output") if not _is_path(values.get(name, ""))]
    accounts = values.get("accounts", {})
    if not isinstance(accounts, dict) or not all(_is_word(account) for account in accounts.values()):
        problems.append("accounts: an account for each key of an experiment.")
    for name, (least, most) in _NUMBERS.items():
        if not _is_number(values.get(name, least), least, most):
            problems.append(f"{name}: a whole number from {least} to {most}.")
    limits = values.get("in_flight", {})
    if not isinstance(limits, dict) or not all(_is_number(limit, 0, 10**7) for limit in limits.values()):
        problems.append("in_flight: a whole number for each key of an experiment.")
    experiments = values.get("experiments", [])
    if not isinstance(experiments, list) or not all(isinstance(key, str) for key in experiments):
        problems.append("experiments: a list of keys of experiments.")
    if not isinstance(values.get("automatic", True), bool):
        problems.append("automatic: true or false.")
    return problems


def _is_number(value: object, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most


def _is_word(value: object) -> bool:
    return isinstance(value, str) and bool(_WORD.fullmatch(value))


def _is_path(value: object) -> bool:
    return isinstance(value, str) and (not value or bool(_PATH.fullmatch(value)))

"""Asks the API whatever its schema allows, and what it does not, in this process;
one more source of bad input.
"""

import itertools
import sys
import traceback
from collections import Counter
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import schemathesis
from django.core.signals import got_request_exception, request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections, transaction
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from apps.accounts.models import ApiToken, User
from apps.core.api.operations import whole_schema

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


@schemathesis.serializer("application/vnd.opsportal.jobs", "application/yaml")
def as_it_is(context: object, value: object) -> bytes:
    """Send a body that is no JSON."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")


@dataclass
class Walk:
    """Users to ask as (None: a stranger), what there is to find, and the results.

    Each case is asked as the liaison and as one of `others`, which take turns: most operations have
    a case of the approver, who may do most.
    """

    users: dict[str, User | None]
    places: dict[str, dict[str, list[object]]]
    examples: int
    seed: int = 0
    others: tuple[str, ...] = ("admin", "approver", "shifter", "approver", "stranger")
    app: Any = field(default_factory=get_wsgi_application)
    problems: dict[str, str] = field(default_factory=dict)
    calls: int = 0
    answers: Counter[int] = field(default_factory=Counter)
    _raised: list[BaseException] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._turns = itertools.cycle(self.others)

    def everywhere(self, only: str = "") -> "Walk":
        """Ask each operation of the schema so many times."""
        schema = schemathesis.openapi.from_dict(deepcopy(whole_schema()))
        schema.app = self.app
        schema.config.generation.with_security_parameters = False
        headers = {name: _token(user) for name, user in self.users.items()}
        got_request_exception.connect(self._keep)
        for signal in (request_started, request_finished):
            signal.disconnect(close_old_connections)  # the test's own transaction goes on
        try:
            for found in schema.get_all_operations():
                if only in f"{found.ok().method.upper()} {found.ok().path}":
                    self._ask_about(found.ok(), headers)
        finally:
            got_request_exception.disconnect(self._keep)
            for signal in (request_started, request_finished):
                signal.connect(close_old_connections)
        return self

    def _ask_about(self, operation: Any, headers: dict[str, dict[str, str]]) -> None:
        cases = [operation.as_strategy(generation_mode=mode) for mode in GenerationMode]

        @seed(self.seed)
        @settings(
            max_examples=self.examples,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=st.one_of(cases), data=st.data())
        def ask(case: Case, data: st.DataObject) -> None:
            for name, values in self._known(operation.path, case).items():
                if data.draw(st.integers(0, 7)) < 7:
                    case.path_parameters[name] = data.draw(st.sampled_from(values))
            for role in ("liaison", next(self._turns)):
                self._ask(case, headers[role], role)

        ask()

    def _known(self, path: str, case: Case) -> dict[str, list[object]]:
        """Return what the parameters of the path may be so that there is something."""
        places = next(
            (known for prefix, known in self.places.items() if path.startswith(prefix)), {}
        )
        return {name: places[name] for name in case.path_parameters or {} if name in places}

    def _ask(self, case: Case, headers: dict[str, str], role: str) -> None:
        self._raised.clear()
        with transaction.atomic():
            response = case.call(headers=headers)
            transaction.set_rollback(True)
        self.calls += 1
        self.answers[response.status_code] += 1
        try:
            case.validate_response(response, checks=CHECKS)
        except FailureGroup as group:
            for failure in group.exceptions:
                self._note(case, failure, f"as {role}: {group}")

    def _note(self, case: Case, failure: BaseException, text: str) -> None:
        raised = "".join(_lines(self._raised))
        where = f"{case.operation.method.upper()} {case.operation.path}"
        kind = f"{where}: {type(failure).__name__} {str(failure)[:60]} {raised[-200:]}"
        self.problems.setdefault(kind, f"{where}\n{text}\n{raised}")

    def _keep(self, **_: Any) -> None:
        self._raised.append(sys.exc_info()[1])


def _token(user: User | None) -> dict[str, str]:
    if user is None:
        return {}
    return {"Authorization": f"Token {ApiToken.objects.create(user, expiry=timedelta(days=1))[1]}"}


def _lines(errors: Iterable[BaseException]) -> Iterable[str]:
    for error in errors:
        yield from traceback.format_exception(error)

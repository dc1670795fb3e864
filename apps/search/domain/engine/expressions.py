"""Match the regular expressions of a query, in a process that is killed if they take too long."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from apps.accounts.models import User
from apps.core.domain.expressions.line_search import LineSearch, Span
from apps.core.domain.expressions.runs import expression_run
from apps.search.domain.engine.base import SearchRefused
from apps.search.domain.query.clauses import Query
from apps.search.domain.query.matcher import list_expressions

#: Of all expressions of a search together.
BUDGET_SECONDS = 1.0

#: Whether each of these texts has what the expressions ask for.
ExpressionCheck = Callable[[Sequence[bytes]], list[bool]]


@contextmanager
def expression_check(query: Query, user: User) -> Iterator[ExpressionCheck]:
    """Yield a function that checks texts. It raises `TooCostly`, and this `SearchRefused` too."""
    expressions = list_expressions(query)
    with ExitStack() as stack:
        if not expressions:
            yield lambda texts: [True] * len(texts)
            return
        run = stack.enter_context(expression_run(user.pk, seconds=BUDGET_SECONDS))
        searches = []
        for expression in expressions:
            search = LineSearch(expression.pattern, regex=True)
            if fault := run.call(LineSearch.fault, search):
                raise SearchRefused(f"{expression}: {fault}")
            searches.append((search, expression.negated))

        def check(texts: Sequence[bytes]) -> list[bool]:
            fits = [True] * len(texts)
            for search, negated in searches:
                matches = run.call(LineSearch.matching, search, list(texts))
                for index, has_match in enumerate(matches):
                    fits[index] = fits[index] and has_match is not negated
            return fits

        yield check


def expression_spans(query: Query, user: User, lines: Sequence[bytes]) -> list[list[Span]]:
    """Return which bytes of each line the expressions match."""
    spans: list[list[Span]] = [[] for _ in lines]
    expressions = [expression for expression in list_expressions(query) if not expression.negated]
    if not expressions or not lines:
        return spans
    with expression_run(user.pk, seconds=BUDGET_SECONDS) as run:
        for expression in expressions:
            search = LineSearch(expression.pattern, regex=True)
            for index, found_spans in enumerate(run.call(LineSearch.spans, search, lines, 20)):
                spans[index] += found_spans
    return spans

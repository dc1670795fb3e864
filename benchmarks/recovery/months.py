"""Months replayed under several policies, and what they show."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from apps.recovery.domain.rules.shipped import shipped_definitions
from benchmarks.recovery.evidence import Observer
from benchmarks.recovery.policies import Crab, NoRetries, Oracle, ServiceRetries
from benchmarks.recovery.replay import Replay, Result
from benchmarks.recovery.rules import RecoveryRules, active_rules, planted_effects
from benchmarks.recovery.world import DAY, SUBMIT_DAYS, Attempt, Cause, World

#: A rule may use so much of what the site runs in a day. The default, 1,000 core-hours, is a small
#: site's; its cost is a row of the table.
BUDGET_SHARE = 0.2
RULES = "these rules"
#: Rules that cannot help: their retries fail again.
USELESS = {
    "Read corrupt input again": {
        "condition": {"known_errors": ["ROOT-BADREAD"]},
        "action": {"kind": "retry", "wait_minutes": 10},
    },
    "More time for a bad release": {
        "condition": {"known_errors": ["PY-NOMODULE"]},
        "action": {"kind": "more-time"},
    },
}


def budget_of(firsts: list[Attempt]) -> float:
    """Return the core-hours a day that each rule may use at a site of this size."""
    core_hours = sum(attempt.core_seconds for attempt in firsts) / 3600
    return BUDGET_SHARE * core_hours / SUBMIT_DAYS


def replay_policies(*, seed: int, jobs: int) -> dict[str, Result]:
    """Replay one month under each policy."""
    world = World(seed=seed, jobs=jobs)
    firsts = world.first_attempts()
    observer = Observer(world)
    shipped = shipped_definitions()
    budget = budget_of(firsts)
    policies = {
        "none": NoRetries(),
        "retries before": ServiceRetries(observer),
        "CRAB": Crab(),
        RULES: RecoveryRules(observer, active_rules(shipped, core_hours_a_day=budget)),
        "on a default budget": RecoveryRules(observer, active_rules(shipped)),
        "oracle": Oracle(),
    }
    results = {}
    for name, policy in policies.items():
        results[name] = Replay(world, firsts, policy).run()
    return results


def ratios(results: Mapping[str, Result]) -> dict[str, float]:
    """Return the measured figures of the bars that one month shows."""
    rules = results[RULES]
    return {
        "hands_off": round(rules.recovered / results["oracle"].recovered, 3),
        "code_retried": round(rules.code_retried / rules.code_problems, 4),
        "wasted": round(rules.wasted_core_hours / results["CRAB"].wasted_core_hours, 3),
    }


def table(results: Mapping[str, Result]) -> str:
    """Return a table of the policies, and one of the share recovered by cause."""
    heading = f"{'policy':24}{'completed':>11}{'hands-off':>11}{'wasted core-h':>15}"
    lines = [heading + f"{'code retried':>14}{'days':>7}{'questions':>11}"]
    for name, result in results.items():
        completed = result.jobs - result.questions
        hands_off = f"{result.recovered / result.failed:.1%}"
        code = f"{result.code_retried / result.code_problems:.1%}"
        lines.append(
            f"{name:24}{completed:>11,}{hands_off:>11}{result.wasted_core_hours:>15,.0f}"
            f"{code:>14}{result.days_to_complete:>7.2f}{result.questions:>11,}"
        )
    heading = f"\n{'recovered of':30}{'failed':>9}"
    for name in results:
        heading += f"{name[:14]:>15}"
    lines.append(heading)
    for cause in Cause:
        failed = results[RULES].failed_by_cause[cause]
        line = f"{cause.value:30}{failed:>9,}"
        for result in results.values():
            share = result.recovered_by_cause[cause] / max(failed, 1)
            line += f"{share:>15.1%}"
        lines.append(line)
    return "\n".join(lines)


def replay_useless_rules(*, seed: int, jobs: int) -> dict[str, float]:
    """Return how many days each useless rule stayed active, from the first job that it matched."""
    world = World(seed=seed, jobs=jobs)
    firsts = world.first_attempts()
    rules = active_rules({**USELESS, **shipped_definitions()}, core_hours_a_day=budget_of(firsts))
    policy = RecoveryRules(Observer(world), rules)
    replay = Replay(world, firsts, policy)
    replay.run()
    days = {}
    for name in USELESS:
        end = policy.stopped_at.get(name, replay.now)
        days[name] = round((end - policy.first_match_at[name]) / DAY, 1)
    return days


@dataclass
class SmallMonths:
    """Many small months with other chances: is the shown effect the true one?"""

    inside: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    known: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    months: list[dict[str, float]] = field(default_factory=list)

    def add(self, *, seed: int, jobs: int, control_percent: float) -> None:
        world = World(seed=seed, jobs=jobs)
        firsts = world.first_attempts()
        rules = active_rules(
            shipped_definitions(),
            core_hours_a_day=budget_of(firsts),
            control_percent=control_percent,
        )
        policy = RecoveryRules(Observer(world), rules)
        replay = Replay(world, firsts, policy)
        results = {RULES: replay.run()}
        planted = planted_effects(policy, replay)
        for name, shown in policy.differences().items():
            self.known[name] += 1
            if shown.low <= planted[name] <= shown.high:
                self.inside[name] += 1
        for name, other in (("CRAB", Crab()), ("oracle", Oracle())):
            results[name] = Replay(world, firsts, other).run()
        self.months.append(ratios(results))

    @property
    def covered_of_100(self) -> float:
        """Of 100 effects that the portal shows, how many lie in their interval."""
        return round(100 * sum(self.inside.values()) / sum(self.known.values()), 1)

    @property
    def covered_by_rule(self) -> dict[str, str]:
        return {name: f"{self.inside[name]} of {known}" for name, known in self.known.items()}

    @property
    def summary(self) -> dict[str, Any]:
        """Median and worst of the other bars. Large control groups waste more."""
        summary = {}
        for name, worst in (("hands_off", min), ("code_retried", max), ("wasted", max)):
            values = [month[name] for month in self.months]
            summary[name] = {"median": round(median(values), 4), "worst": worst(values)}
        return summary

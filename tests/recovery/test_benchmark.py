"""The benchmark of recovery rules, with few jobs."""

import pytest

from apps.recovery.domain.rules.shipped import shipped_definitions
from benchmarks.recovery.evidence import Observer
from benchmarks.recovery.months import USELESS, budget_of
from benchmarks.recovery.policies import Crab, NoRetries, Oracle, ServiceRetries
from benchmarks.recovery.replay import Replay
from benchmarks.recovery.rules import RecoveryRules, active_rules, planted_effects
from benchmarks.recovery.world import CODE, Cause, World


@pytest.fixture(scope="module")
def month():
    world = World(seed=3, jobs=2500)
    return world, world.first_attempts()


def test_policies_recover_what_they_should(month):
    world, firsts = month
    observer = Observer(world)
    rules = active_rules(shipped_definitions(), core_hours_a_day=budget_of(firsts))
    recovered = {}
    for policy in (
        NoRetries(),
        ServiceRetries(observer),
        Crab(),
        RecoveryRules(observer, rules),
        Oracle(),
    ):
        result = Replay(world, firsts, policy).run()
        recovered[type(policy).__name__] = result.recovered
        if isinstance(policy, Oracle):
            assert not any(result.recovered_by_cause[cause] for cause in CODE)
        if isinstance(policy, RecoveryRules):
            assert result.recovered_by_cause[Cause.MEMORY] > 0
            assert result.code_retried < 0.05 * result.code_problems
    assert recovered["NoRetries"] == 0
    assert recovered["ServiceRetries"] < recovered["RecoveryRules"] < recovered["Oracle"]
    assert recovered["Crab"] < recovered["Oracle"]


def test_useless_rule_is_stopped_and_the_effect_of_memory_is_shown(month):
    world, firsts = month
    rules = active_rules({**USELESS, **shipped_definitions()}, control_percent=50)
    policy = RecoveryRules(Observer(world), rules)
    replay = Replay(world, firsts, policy)
    replay.run()
    assert "More time for a bad release" in policy.stopped_at
    planted = planted_effects(policy, replay)
    assert planted["More memory"] > 0.5
    assert planted["More time for a bad release"] == 0

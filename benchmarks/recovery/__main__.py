"""What recovery rules gain: `python -m benchmarks.recovery [--jobs N] [--months N]`.

Replays a month of 500,000 jobs (N) of 12 experiments with planted truth under five policies: none,
the retries before there were rules, CRAB's, the shipped rules, an oracle that knows the truth.
Then rules without effect, planted beside the shipped ones; then 100 small months (N), in which
the effect that the portal shows is compared to the true one. Prints a table, and one JSON object
last, in which each bar has its figure beside it: `hands_off` (share of what the oracle recovers),
`code_retried` (share of the code problems), `wasted` (core-hours, share of CRAB's),
`useless_days` (longest time that a rule without effect stays active), `covered` (of 100 effects,
how many lie in their interval).
Needs no database.
"""

import argparse
import json
import time

from benchmarks.database import set_up_without_database

SMALL_JOBS = 20_000
SMALL_CONTROL_PERCENT = 20
USELESS_JOBS = 100_000
BARS = {
    "hands_off": "at least 0.85",
    "code_retried": "at most 0.01",
    "wasted": "at most 0.5",
    "useless_days": "at most 7",
    "covered": "at least 93",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=500_000)
    parser.add_argument("--months", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    set_up_without_database()
    from benchmarks.recovery import months

    began = time.process_time()
    results = months.replay_policies(seed=options.seed, jobs=options.jobs)
    print(months.table(results))
    useless = months.replay_useless_rules(seed=options.seed, jobs=USELESS_JOBS)
    small = months.SmallMonths()
    for seed in range(1000, 1000 + options.months):
        small.add(seed=seed, jobs=SMALL_JOBS, control_percent=SMALL_CONTROL_PERCENT)
    measured = months.ratios(results) | {
        "useless_days": max(useless.values()),
        "covered": small.covered_of_100,
    }
    bars = {}
    for name, bar in BARS.items():
        bars[name] = {"measured": measured[name], "bar": bar}
    figures = {
        "bars": bars,
        "useless_days_by_rule": useless,
        "covered_by_rule": small.covered_by_rule,
        "small_months": small.summary,
        "jobs": options.jobs,
        "cpu_seconds": round(time.process_time() - began),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()

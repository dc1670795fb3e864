"""How long the causes of 100,000 and of 700,000 jobs take: `python -m benchmarks.cause_analysis`.

Prints one JSON object last: `seconds_100k`, `seconds_700k`, and whether all planted causes and no
others were found.
"""

import json
import time

from apps.diagnosis.domain.causes.common.peeling import find_causes
from tests.diagnosis.causes.generated_months import PLANTED, month


def main() -> None:
    figures: dict[str, object] = {}
    for name, jobs, submissions in (("100k", 100_000, 1500), ("700k", 700_000, 7000)):
        columns = month(1, jobs=jobs, submissions=submissions, causes=PLANTED)
        began = time.perf_counter()
        causes = find_causes(columns)
        figures[f"seconds_{name}"] = round(time.perf_counter() - began, 2)
        planted = {(attribute, value) for attribute, value, _ in PLANTED}
        figures[f"exact_{name}"] = {(one.attribute, one.value) for one in causes} == planted
    nothing = [find_causes(month(seed, jobs=4000, submissions=60)) for seed in range(100)]
    figures["invented_in_100"] = sum(map(len, nothing))
    print(json.dumps(figures))


if __name__ == "__main__":
    main()

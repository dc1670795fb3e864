"""How well templates group lines: `python -m benchmarks.line_templates DIRECTORY`.

DIRECTORY holds sets of Loghub (https://github.com/logpai/loghub-2.0): files whose name ends in
`log_structured.csv` or `log_structured_corrected.csv`, with the columns Content and EventId. For
each set, prints the number of lines and events, the grouping accuracy of the portal's templates and
of drain3 with its defaults (`pip install drain3`; without it, that column is empty), and the time
each takes for a line. A line is grouped right if its group has exactly the lines of its event (Zhu
et al., ICSE-SEIP 2019). Prints one JSON object last: the means over all sets.
"""

import argparse
import csv
import importlib.util
import json
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import mean


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    options = parser.parse_args()
    with_drain = importlib.util.find_spec("drain3") is not None
    accuracies: dict[str, list[float]] = defaultdict(list)
    for path in sets_in(options.directory):
        with path.open(encoding="utf-8", errors="replace", newline="") as file:
            rows = [(row["Content"], row["EventId"]) for row in csv.DictReader(file)]
        lines = [line for line, _ in rows]
        events = [event for _, event in rows]
        printed = [path.name.partition(".")[0], f"{len(rows)} lines", f"{len(set(events))} events"]
        for name, group in (("templates", by_templates), ("drain3", by_drain)):
            if name == "drain3" and not with_drain:
                continue
            group([])  # the imports
            started = time.process_time()
            groups = group(lines)
            taken = (time.process_time() - started) / len(rows)
            accuracies[name].append(accuracy(groups, events))
            printed.append(f"{name} {accuracies[name][-1]:.3f} in {1e6 * taken:.1f} µs a line")
        print(*printed, sep=", ")
    means = {name: round(mean(values), 3) for name, values in accuracies.items()}
    print(json.dumps({"sets": len(accuracies["templates"]), **means}))


def sets_in(directory: Path) -> list[Path]:
    """Return the files of all sets; of a set with a corrected file, that one."""
    corrected = {path.parent: path for path in directory.rglob("*log_structured_corrected.csv")}
    others = {path.parent: path for path in directory.rglob("*log_structured.csv")}
    return sorted((others | corrected).values())


def by_templates(lines: Sequence[str]) -> list[object]:
    from apps.diagnosis.engine.evidence.novelty import Templates

    templates = Templates()
    return [templates.hash_of(line.encode()) for line in lines]


def by_drain(lines: Sequence[str]) -> list[object]:
    from drain3 import TemplateMiner  # type: ignore[import-not-found]
    from drain3.template_miner_config import TemplateMinerConfig  # type: ignore[import-not-found]

    miner = TemplateMiner(config=TemplateMinerConfig())
    return [miner.add_log_message(line)["cluster_id"] for line in lines]


def accuracy(groups: Sequence[object], events: Sequence[object]) -> float:
    """Return the share of lines whose group has exactly the lines of their event."""
    by_group = defaultdict(set)
    by_event = defaultdict(set)
    for number, (group, event) in enumerate(zip(groups, events, strict=True)):
        by_group[group].add(number)
        by_event[event].add(number)
    right = 0
    for number, event in enumerate(events):
        right += by_group[groups[number]] == by_event[event]
    return right / len(events)


if __name__ == "__main__":
    main()

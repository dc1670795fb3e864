"""Kill each machine of a portal, and cut it off, while the portal is used; count what is lost.

    python -m benchmarks.failover [--rounds N] [--roles NAME ...] [--seconds SECONDS]
        [--haproxy] [--directory DIRECTORY]

As root, with Patroni 3.0.3 or later, etcd-server and nginx or haproxy. Each machine is a network
namespace on one bridge: two with PostgreSQL (Patroni, synchronous) and etcd, two with Valkey and
Sentinel, a witness with etcd and Sentinel, two web servers behind nginx, two with a worker and a
beat, two captures of one spool; with the role `elasticsearch`, three with Elasticsearch. Meanwhile
users read pages, programs call the API and post, and the scheduler starts jobs; with Elasticsearch,
logs are indexed and searched.

A kill ends all programs of the machine and its network at once, a cut drops its packets; both last
SECONDS. Of each role, the machine is taken that acts: the primary, the one whose beat sends, the
elected master. Of `postgresql`, only the processes of the primary's server are killed.

Prints for each role and kind of outage how many requests failed, the longest time without service
(from the first failed answer to the last in a row, of reading and of posting), the slowest answer
without error, how long until the other beat sent, and how long after the machine was back until all
work was done. Searches count as requests. Exits with 1 if something was lost or is there twice, or
a search was not whole and did not say so.
"""

import argparse
import sys
from pathlib import Path

from benchmarks.failover.directory import machines_directory
from benchmarks.failover.outages import ROLES, Run


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20, help="default: 20")
    parser.add_argument("--roles", nargs="+", choices=ROLES, default=ROLES, metavar="NAME")
    parser.add_argument("--seconds", type=float, default=30, help="default: 30")
    parser.add_argument(
        "--directory", type=Path, help="a new one, which keeps the logs (default: none is kept)"
    )
    parser.add_argument(
        "--haproxy", action="store_true", help="in place of nginx, and before PostgreSQL, too"
    )
    options = parser.parse_args()
    with machines_directory(options.directory) as base:
        run = Run(base, options.roles, with_haproxy=options.haproxy)
        try:
            run.measure(options.roles, options.rounds, options.seconds)
            return run.report()
        finally:
            run.close()


if __name__ == "__main__":
    sys.exit(main())

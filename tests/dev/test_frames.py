"""Where pytest runs the tests: in memory that has room for the frames of all functions."""

import resource

CALLS = 1_000
DEPTH = 400


def call_at_depth(depth):
    if depth:
        call_at_depth(depth - 1)
        return
    for _ in range(CALLS):
        take_more_memory_than_the_caller()


def take_more_memory_than_the_caller(a=0, b=0, c=0, d=0, e=0, f=0, g=0, h=0):
    return a, b, c, d, e, f, g, h


def test_no_call_takes_memory_of_the_kernel_each_time():
    """Memory that comes from the kernel is a page fault when it is first used."""
    call_at_depth(DEPTH)
    faults_before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for depth in range(DEPTH):
        call_at_depth(depth)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults_before < CALLS

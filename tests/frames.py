"""The memory in which the frames of functions lie."""


def call_with_large_frame(function, *arguments):
    """Call a function in memory that has room for the frames of all that it calls."""
    return function(*arguments)


# CPython keeps the frames of running functions in pieces of memory of 16 kB. It returns a piece to
# the kernel when its last function returns, and takes it again for the next call. Where a loop
# stands at the end of a piece, that happens with each call: 10,000 times a second, a twelfth of the
# processor's time. The piece of a larger frame is a power of two, here 2 MB, of which the frame
# needs half, and all that it calls finds room in the rest.
call_with_large_frame.__code__ = call_with_large_frame.__code__.replace(co_stacksize=2**17)

"""An expression that is small and slow: RE2 makes new states for it all the time,
and a megabyte takes seconds.
"""

from random import Random

REGEX = "(?:a.{0,99}b){9}"
_random = Random(1)
LOG = "".join("".join(_random.choices("aab ", k=120)) + "\n" for _ in range(8_000))

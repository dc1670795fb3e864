"""`celery`, but a worker that takes no messages ends after a second."""

from celery.__main__ import main

from opsportal import stalls

stalls.LOOK_SECONDS = 0.2
stalls.IDLE_SECONDS = 1.0
main()

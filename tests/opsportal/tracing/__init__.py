"""Tests of traces. In this process they are off, so that the settings keep OpenTelemetry from being
loaded: these tests load it all the same.
"""

import sys

if "opentelemetry" in sys.modules and sys.modules["opentelemetry"] is None:
    del sys.modules["opentelemetry"]

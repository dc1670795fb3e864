"""The IDs of traces in the log."""

import logging
import sys


class TraceFilter(logging.Filter):
    """Adds `trace_id` and `span_id` to a line that belongs to a kept trace."""

    def filter(self, record: logging.LogRecord) -> bool:
        # Commands make no spans: for their lines, it is not loaded.
        trace = sys.modules.get("opentelemetry.trace")
        if trace is not None:
            context = trace.get_current_span().get_span_context()
            if context.trace_flags.sampled:
                record.trace_id = trace.format_trace_id(context.trace_id)
                record.span_id = trace.format_span_id(context.span_id)
        return True

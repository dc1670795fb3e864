"""The engine behind verdicts, without Django: read a log's end, match known errors,
weigh the evidence.
"""

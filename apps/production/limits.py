"""The longest texts and the largest numbers of a request and its stages."""

MAX_STAGES = 100
#: Longest texts, by field of the request and of a stage.
MAX_LENGTH = {"title": 200, "purpose": 10_000, "priority_reason": 2_000}
STAGE_MAX_LENGTH = {"name": 64, "release": 100, "configuration": 300, "input_dataset": 300, "output_dataset": 300}
#: Largest numbers of a stage: what a typing error would pass.
STAGE_MAX = {
    "events": 10**12,
    "jobs": 10**6,
    "memory_bytes": 16 * 10**12,
    "wall_seconds": 30 * 86_400,
}
NUMBERS = tuple(STAGE_MAX)

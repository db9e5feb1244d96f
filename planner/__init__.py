"""A batch placement planner for shared GPUs: read the cluster and the queue, decide, check, emit."""

__version__ = "0.1.0"

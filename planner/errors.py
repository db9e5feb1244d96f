"""Every exception a user can meet, and the exit code it becomes.

PlannerError
├── WriteFailed         1  a result could not be written: a full disk, a closed device
├── InputError          2  a file, key or option is wrong: says where, what was found, what is accepted
├── EngineMissing       2  the solver that was asked for is not installed here
├── ClusterUnreadable   3  the cluster's state could not be read
├── PlanRejected        4  the checks refuse a plan
└── BackendRefused      5  the backend did not accept a plan
"""

from __future__ import annotations


class PlannerError(Exception):
    """Base of all errors that are shown as one line, without a traceback."""

    exit_code = 1


class WriteFailed(PlannerError):
    """A result could not be written."""


class InputError(PlannerError):
    """A file, key or option is wrong.

    ``where`` is a file and key (``burst.yaml: jobs[3].gpus``) or an option; ``found`` what stands there;
    ``accepted`` what may stand there.
    """

    exit_code = 2

    def __init__(self, where: str, found: str, accepted: str = "") -> None:
        self.where = where
        self.found = found
        self.accepted = accepted
        text = f"{where}: {found}" + (f"; accepted: {accepted}" if accepted else "")
        super().__init__(" ".join(text.split()))


class EngineMissing(PlannerError):
    """The solver that was asked for is not installed or not known."""

    exit_code = 2


class ClusterUnreadable(PlannerError):
    """The cluster's state could not be read."""

    exit_code = 3


class PlanRejected(PlannerError):
    """The checks refuse a plan; its message holds the first findings."""

    exit_code = 4


class BackendRefused(PlannerError):
    """The backend did not accept a plan."""

    exit_code = 5

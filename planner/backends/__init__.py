"""A back end: where snapshots come from and plans go to.

The whole seam is ``Backend``. An epoch does not know whether a cluster, a file or a simulation is behind it; what a back
end cannot express it says in ``capabilities``, and the plan keeps to that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from planner.formulate import Capabilities
    from planner.model import Snapshot
    from planner.plan import Plan, Receipt


class Backend(Protocol):
    """What an epoch needs of a cluster."""

    @property
    def capabilities(self) -> Capabilities:
        """What this back end can express."""
        ...

    def snapshot(self) -> Snapshot:
        """The cluster and the queue now. Raises ClusterUnreadable."""
        ...

    def apply(self, plan: Plan, *, dry_run: bool = False) -> Receipt:
        """Do what the plan says, once per plan id, leaving out what no longer fits the state as it is now.

        Raises BackendRefused if nothing could be done.
        """
        ...

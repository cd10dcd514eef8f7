"""pytest-xdist's workers take the units of `tests.durations`, the longest first."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

from tests import durations


class LongestFirst(LoadScopeScheduling):
    """xdist's scheduling by scope, whose scopes are the units, in their order."""

    def schedule(self) -> None:
        if self.collection is None:
            tests = next(iter(self.registered_collections.values()))
            units = durations.groups(tests, durations.read(), len(self.nodes))
            self.unit_of = {test: name for name, members in units.items() for test in members}
            self.workqueue.update((name, {}) for name in units)  # xdist fills a scope that is there where it stands
            self.config.option.loadscopereorder = False
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        return self.unit_of[nodeid]

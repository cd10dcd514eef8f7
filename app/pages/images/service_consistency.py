"""How consistent heads are on a data set, measured in the background, once for a model and its data. No Dash."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.core.errors import RequestError
from app.core.jobs import Job, Jobs, Report
from app.pages.images.request import ImageRequest
from app.pages.images.service import ImageViews

if TYPE_CHECKING:
    from aotlens.heads import SemanticConsistency
    from app.core import Core

#: Permutations of the labels, and draws of images, by which consistency is held against chance.
N_PERMUTATIONS, N_BOOTSTRAP = 200, 200
#: What is counted, by the phase of the work.
UNITS = {"looking at images": "images", "comparing regions": "heads"}


class Consistencies:
    """Jobs that measure, and what came of the last of them."""

    def __init__(self, views: ImageViews) -> None:
        self._views = views
        self.jobs = Jobs(kept=16, memory=views.core.memory, seconds=views.core.settings.job_seconds)

    def start(self, asked: ImageRequest, session: str = "") -> Job:
        """Measure every head in the background; the job that does, or did."""
        return self.jobs.start(
            self._key(asked), f"Consistency of {asked.checkpoint} on {asked.data}",
            lambda report: self._measure(asked, report), session=session,
        )  # fmt: skip

    def job(self, asked: ImageRequest) -> Job | None:
        """The job of `start`, if there is one."""
        return self.jobs.get(self._key(asked))

    def made(self, asked: ImageRequest) -> SemanticConsistency:
        """What was measured. Raises RequestError where that is not done."""
        job = self.job(asked)
        if job is None or job.state != "done":
            raise RequestError(
                f"The consistency of {asked.checkpoint} on {asked.data} isn't measured yet: the tab Consistency says "
                "how far it is."
            )
        found: SemanticConsistency = job.result
        return found

    def _key(self, asked: ImageRequest) -> str:
        return f"{self._views.load(asked.checkpoint)[1].key}:{asked.data}"

    def _measure(self, asked: ImageRequest, report: Report) -> SemanticConsistency:
        from aotlens.heads import semantic_consistency

        _, loaded = self._views.load(asked.checkpoint)
        test = self._views.data(asked.data, loaded).test
        n_images = self._views.n_fitting(loaded, self._views.core.settings.consistency_images)
        chosen = test.take(test.by_turns()[:n_images])
        model = loaded.copied()

        def tell(done: int, total: int) -> None:
            n_looked = len(chosen.images)
            if done <= n_looked:
                report(done, n_looked, "looking at images")
            else:
                report(done - n_looked, total - n_looked, "comparing regions")

        return semantic_consistency(
            model, model.to_images(chosen.images), chosen.labels, n_permutations=N_PERMUTATIONS,
            n_bootstrap=N_BOOTSTRAP, progress=tell,
        )  # fmt: skip


class Images(ImageViews):
    """Images through models, and how consistent heads are on all of a data set."""

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self.consistencies = Consistencies(self)

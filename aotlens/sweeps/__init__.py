"""Grids of runs: models × seeds × settings × analyses, here or on a cluster, each cell computed once.

plan.py      Sweep: what is to be run, from TOML
calling.py   an analysis by name, and its result as a table
inputs.py    what analyses read: text, images, prompts, as each model takes them
cells.py     a sweep as jobs, each with all that decides its result
job.py       a cell as it travels, and what comes back
process.py   a cell in a process of its own
child.py     what that process does
store.py     the folder of a sweep
running.py   run_sweep, on joblib: threads of this process, or a Dask cluster
"""

from __future__ import annotations

from aotlens.sweeps.plan import Analysis, Data, Models, Sweep, load_sweep
from aotlens.sweeps.running import SweepStatus, run_sweep, sweep_status

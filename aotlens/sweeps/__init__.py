"""Grids of runs: models × seeds × settings × analyses, here or on a cluster, each cell computed once.

plan.py      Sweep: what is to be run, from TOML
calling.py   an analysis by name: its inputs, its call, its result as a table
store.py     the folder of a sweep; a cell as it travels, and its outcome
process.py   a cell in a process of its own
child.py     what that process does
running.py   a sweep as cells, and run_sweep, on joblib: threads of this process, or a Dask cluster
"""

from __future__ import annotations

from aotlens.sweeps.plan import Analysis, Data, Models, Sweep, load_sweep
from aotlens.sweeps.running import SweepStatus, run_sweep, sweep_status

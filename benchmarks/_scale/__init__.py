"""Cost against size: `python -m benchmarks scale` (`benchmarks/scale.py`).

analyses.py     shapes and untrained models, the laws, the analyses and the sizes that they are measured at
points.py       one measurement in a process of its own; the list of points and the file from which a run resumes
page.py         exponents, estimates by the law, and the section of docs/scale.md
"""

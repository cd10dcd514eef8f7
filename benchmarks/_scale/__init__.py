"""Cost against size: `python -m benchmarks scale` (`benchmarks/scale.py`).

shapes.py       the sizes of a model and a prompt, the axes, untrained models
laws.py         operations and bytes of each analysis, as its algorithm has them
headline.py     the analyses, and the sizes that they are measured at
point.py        one measurement in a process of its own
series.py       which points there are; what is skipped; the file that a run goes on from
fit.py          a + b · size^p by least squares of logarithms, with profile intervals
rates.py        a law with the machine's rates, fitted to all points
extrapolate.py  sizes that were not measured, from the laws and from the fits
reasons.py      why a measured exponent is not its law's
tables.py, figure.py, words.py    the section of docs/scale.md and its picture
"""

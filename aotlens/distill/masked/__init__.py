"""Masked tokens told apart and recovered by attention alone, by construction (*nonlinearity*, Sections 5 and 6).

assumption.py   Assumption 3.1, checked
point_fit.py    a ReLU network of 3n units through n points (Lemma H.4)
distinguish.py  one layer that tells masks apart (Propositions 5.1–5.3)
masked_lm.py    two layers that recover every masked token (Theorem 6.1)
"""

from aotlens.distill.masked.assumption import MaskedSequences, check_assumption
from aotlens.distill.masked.distinguish import DistinguishedMasks, distinguish_mask
from aotlens.distill.masked.masked_lm import MaskedLanguageModel, masked_lm
from aotlens.distill.masked.point_fit import PointFit, point_fit

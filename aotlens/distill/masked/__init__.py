"""Masked tokens distinguished and recovered by attention alone, by construction (*nonlinearity*, Sections 5 and 6).

assumption.py   Assumption 3.1, checked
distinguish.py  one layer that distinguishes masks (Propositions 5.1–5.3); a ReLU network through n points (Lemma H.4)
masked_lm.py    two layers that recover every masked token (Theorem 6.1)
"""

from aotlens.distill.masked.assumption import MaskedSequences, check_assumption
from aotlens.distill.masked.distinguish import DistinguishedMasks, PointFit, distinguish_mask, point_fit
from aotlens.distill.masked.masked_lm import MaskedLanguageModel, masked_lm

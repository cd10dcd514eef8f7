"""*all four papers*: theorems, lemmas and counts that no other analysis runs, on random inputs.

    python -m analyses statements [--quick] [--docs docs/statements.md] [--store]

Constructions of *nonlinearity* (§4 to §6), Bayes predictors of *in-context-denoising* (§2, §3, Appendix C), sizes of
*aot*'s Tables 1, 2, 4 and 5 and its Lemmas B.1 and B.2, definitions of *structures*. Each statement stands as it is
printed; where the print is wrong (design: "Known slips"), the printed form has a claim that does not hold beside the
corrected one that does. Seconds; `--quick` draws less.
"""

from __future__ import annotations

import sys

from analyses._claims import Claim, claims_table, parser
from analyses._outcomes import publish_run
from analyses._statements_denoising import of_aot, of_in_context_denoising
from analyses._statements_structures import of_nonlinearity, of_structures


def claims(*, quick: bool) -> dict[str, list[Claim]]:
    """Return every statement, by the paper's short name."""
    return {
        "structures": of_structures(),
        "nonlinearity": of_nonlinearity(quick=quick),
        "in-context-denoising": of_in_context_denoising(quick=quick),
        "aot": of_aot(quick=quick),
    }


def main(argv: list[str] | None = None) -> int:
    options = parser(__doc__, docs=True)
    arguments = options.parse_args(argv)
    by_paper = claims(quick=arguments.quick)
    for paper, of_paper in by_paper.items():
        print(f"*{paper}*:\n\n{claims_table(of_paper)}\n")
    publish_run(arguments, "statements", "docs/statements.md", [*by_paper.values()])
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The pages, in the order of the navigation; a folder each.

heads/         every head's attention on text that you type
circuits/      what a head looks for and writes, from the weights
trigrams/      a head's skip-trigrams and their evidence in text
paths/         which ways a logit came
distillation/  feed-forward networks in place of heads
nonlinearity/  a feed-forward network compiled into attention
checkpoints/   which models there are
page.py        what a page is
shared.py      what several pages let the browser do, and how they save files
guard.py       what a callback does with an error
router.py      address -> page

In a folder: layout.py what is there, callbacks.py what it asks of the server, browser.py what the browser does alone,
export.py files. A new page is a folder with a `PAGE`, named below; its ids are in `app.ids`, its address in
`app.urlstate`.
"""

from __future__ import annotations

from app.pages import checkpoints, circuits, distillation, heads, nonlinearity, paths, trigrams

PAGES = (heads.PAGE, circuits.PAGE, trigrams.PAGE, paths.PAGE, distillation.PAGE, nonlinearity.PAGE, checkpoints.PAGE)

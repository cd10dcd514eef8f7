"""Pure functions from values to Dash components.

shell.py       the frame of every page
panel.py       title, explanation, maximise, export, notice, content
notices.py     errors and empty states
token_strip.py tokens as chips
head_grid.py   the cells over the picture of all heads
predictions.py the table of next tokens
graph.py       the one dcc.Graph configuration
prompt.py      which checkpoint, which text
choices.py     searchable choices of tokens, and the head picker
circuit_tables.py  the Circuits page's tables
distillation_parts.py  the Distillation page's table of heads and coloured tokens
nonlinearity_tables.py the Non-linearity page's facts, tables and head picker
path_tables.py the Paths page's tokens and tables
trigram_tables.py, occurrence_list.py  the Skip-trigrams page's tables and places in text
examples.py    texts to start from
"""

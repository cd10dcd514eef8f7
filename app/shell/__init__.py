"""The parts that every page uses: its frame, what it is made of, and how it is wired. It knows no page by name.

page.py        what a page is
app.py         a Dash app with a core
frame.py       name, navigation, theme, a place for the page
navigation.py  address -> page, with notices for values that cannot be
callbacks.py   `guarded`: server callbacks by names, errors said in their panel
browser.py     the browser's side: functions by names, links, what writes the address
health.py      whether the app can be used
sign_in.py     asks for the token of a shared app
sharing.py     what several pages do alike: run a text, mark a head, save figures and files
checking.py    every callback against all layouts, at start
static.py      scripts and styles, served by list, with fingerprints
ids.py         ids of a page, and of the parts of a panel, a graph, a table
panel.py       title, explanation, maximise, export menu, notice, content; tabs of panels
python.py      lines that give a view's numbers in a notebook
tables.py      tables of values, tokens and their cells
score_lines.py the largest pairs of paths of a score, as a table with links to heads' maps
maps.py        answers of routes that give maps of heads
graph.py       the one dcc.Graph configuration
notices.py     errors and empty states
own_texts.py   upload, paste and delete a user's texts next to a choice of texts
prompt.py      which checkpoint, which text
choices.py     searchable choices of tokens
static/        scripts and styles of all that
"""

# The commands of the project; README.md says the same without make.
# ARGS is passed on: make app ARGS="--port 9000", make test ARGS="tests/models -x".

.DEFAULT_GOAL := help
.PHONY: help setup app test test-long test-shapes durations mutants lint docs bench train

# PYTHON= on the command line or in the environment chooses the interpreter of .venv.
PYTHON_GIVEN := $(if $(filter undefined default,$(origin PYTHON)),,yes)
PYTHON ?= python3
# Twice quiet leaves pip's errors and drops its warnings about the machine's own configuration.
PIP_INSTALL := .venv/bin/python -m pip install --quiet --quiet --disable-pip-version-check

help:
	@echo 'make app                  serve the app on http://127.0.0.1:8050'
	@echo 'make test                 the whole suite, browser tests included where there is a Chromium'
	@echo 'make test-long            the tests that are too slow for make test: journeys through pages, long computations'
	@echo 'make test-shapes          tests of the packages that changed, with shapes and types checked at every call'
	@echo 'make durations            the whole suite, storing what each test takes in tests/durations.json'
	@echo 'make mutants              would a test notice? 300 small changes of the code; ARGS=--cover once before that'
	@echo 'make lint                 ruff (rules and format), and mypy on aotlens/'
	@echo 'make docs                 the site, in docs/_build/html: it opens from disk, without a server or a network'
	@echo 'make bench                the measurements that README.md reports'
	@echo 'make train RECIPE=...     train a checkpoint (a name in aotlens/train/recipes, or a TOML file)'
	@echo
	@echo 'Each sets up .venv first. ARGS="..." is passed on; PYTHON=... chooses the interpreter.'

# .venv/.installed is written last. It holds where the folder was and a checksum of what was
# installed; contents, not dates, so that switching branches costs nothing. Without it, or with an
# interpreter that has gone, or in a moved folder, .venv is made anew; where only the pins have
# changed they are installed over it. .venv/.installing names the process that is at it, since two at once
# would spoil each other's work. pip's own configuration is left to do its work.
setup:
	@waiting=; while [ -f .venv/.installing ] && kill -0 `cat .venv/.installing` 2>/dev/null; do \
	    [ -n "$$waiting" ] || echo "Waiting for process `cat .venv/.installing 2>/dev/null`, which sets up .venv ..."; \
	    waiting=yes; sleep 1; \
	done; \
	identity='import sys; print(sys.version_info[:3], sys.base_prefix)'; \
	checksum=`cat requirements.txt pyproject.toml | cksum`; \
	have=`.venv/bin/python -c "$$identity; import pip" 2>/dev/null` || have=; \
	if [ -n '$(PYTHON_GIVEN)' ]; then \
	    want=`$(PYTHON) -c "$$identity" 2>/dev/null` || want=none; \
	else \
	    want=$$have; \
	fi; \
	usable=; \
	if [ -n "$$have" ] && [ "$$have" = "$$want" ] && [ -f .venv/.installed ] \
	    && [ "`head -n 1 .venv/.installed`" = "`pwd`" ]; then usable=yes; fi; \
	if [ -n "$$usable" ] && [ "`tail -n 1 .venv/.installed`" = "$$checksum" ]; then exit 0; fi; \
	if [ -z "$$usable" ]; then \
	    if ! $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	        echo "aotlens needs Python 3.11 or newer; '$(PYTHON)' is" \
	            "`$(PYTHON) --version 2>/dev/null || echo 'not here or does not run'`." >&2; \
	        echo "Install one (Debian and Ubuntu: sudo apt-get install python3 python3-venv;" \
	            "macOS: brew install python), or name one: make PYTHON=/path/to/python3.12 ..." >&2; \
	        exit 1; \
	    fi; \
	    if ! $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null; then \
	        echo "'$(PYTHON)' cannot make virtual environments: its venv module is incomplete." >&2; \
	        echo "Debian and Ubuntu: sudo apt-get install" \
	            "python`$(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])'`-venv" \
	            "(or name another interpreter: make PYTHON=/path/to/python3 ...)" >&2; \
	        exit 1; \
	    fi; \
	    rm -rf .venv; \
	    mkdir .venv && echo $$$$ > .venv/.installing && $(PYTHON) -m venv .venv || exit 1; \
	fi; \
	echo $$$$ > .venv/.installing; \
	rm -f .venv/.installed; \
	echo 'Installing the packages of requirements.txt into .venv (once; some minutes) ...'; \
	if $(PIP_INSTALL) -r requirements.txt \
	    && $(PIP_INSTALL) --no-deps --no-build-isolation -e .; then \
	    { pwd; echo "$$checksum"; } > .venv/.installed; \
	    rm -f .venv/.installing; \
	else \
	    echo 'The installation failed; pip says why above, and at length with' \
	        '.venv/bin/python -m pip install -r requirements.txt. make starts afresh.' >&2; \
	    exit 1; \
	fi

app: setup
	@.venv/bin/python -m app $(ARGS)

# Files go to the workers longest first, as tests/durations.json has them.
PYTEST := NO_PROXY=127.0.0.1,localhost .venv/bin/python -m pytest
PARALLEL := -n auto --dist loadfile --no-loadscope-reorder

test: setup
	@$(PYTEST) $(PARALLEL) $(ARGS)

test-long: setup
	@$(PYTEST) $(PARALLEL) -m long $(ARGS) || [ $$? -eq 5 ]  # no test of ARGS is long

test-shapes: setup
	@tests=`.venv/bin/python -m tests.changed shapes` || exit 1; \
	if [ -n "$(strip $(ARGS))" ]; then tests=; elif [ -z "$$tests" ]; then echo 'No package has changed.'; exit 0; fi; \
	$(PYTEST) $(PARALLEL) --check-shapes -m 'not long and not slow and not browser' $$tests $(ARGS)

durations: setup
	@$(PYTEST) $(PARALLEL) --store-durations $(ARGS)

lint: setup
	@.venv/bin/python -m ruff check .
	@.venv/bin/python -m ruff format --check --quiet . || { echo 'Not formatted; run .venv/bin/python -m ruff format .' >&2; exit 1; }
	@.venv/bin/python -m mypy

# What the site is built with, and what mutants are drawn with, is installed over .venv when its requirements.txt or
# .venv has changed; the marker lies in .venv, and goes with it.
define INSTALL_OVER
	@checksum=`cat requirements.txt $(1)/requirements.txt | cksum`; marker=.venv/.installed-$(notdir $(1)); \
	if [ "`cat $$marker 2>/dev/null`" != "$$checksum" ]; then \
	    echo 'Installing the packages of $(1)/requirements.txt into .venv ...'; \
	    $(PIP_INSTALL) -r requirements.txt -r $(1)/requirements.txt || exit 1; \
	    echo "$$checksum" > $$marker; \
	fi
endef

docs: setup
	$(call INSTALL_OVER,docs)
	@.venv/bin/python -m sphinx -W --keep-going -q -b html $(ARGS) docs docs/_build/html
	@echo 'The site is docs/_build/html/index.html.'

mutants: setup
	$(call INSTALL_OVER,tests/mutants)
	@NO_PROXY=127.0.0.1,localhost .venv/bin/python -m tests.mutants $(ARGS)

bench: setup
	@.venv/bin/python -m benchmarks $(ARGS)

train: setup
	@if [ -z '$(RECIPE)' ]; then \
	    echo 'Say which: make train RECIPE=NAME_OR_TOML [ARGS="--device cuda ..."]. Recipes here:' >&2; \
	    ls aotlens/train/recipes | sed -n 's/\.toml$$//p' >&2; \
	    exit 2; \
	fi
	@.venv/bin/python -m aotlens train '$(RECIPE)' $(ARGS)

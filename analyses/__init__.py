"""One module per claim, table or figure of the papers: `python -m analyses.NAME`, with `--quick` for seconds."""

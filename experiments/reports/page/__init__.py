"""One self-contained HTML page of a run, or of a folder of results: no server, no outside links.

Only `charts` needs the extra `report` (Altair, and vl-convert, which brings the programs that draw in the browser).
"""

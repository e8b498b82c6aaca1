"""A page about rows and what a detector finds in them, for a person who would rather look.

``findings``
    one pass over the rows: scores, rows to draw, top outliers, what the parts add, drift
``plots``
    its pictures, in plotly's words, and the rows of its map and its table
``page``
    from findings to one HTML file, which holds the library that draws, and nothing that a stranger wrote runs in it
"""

from pyod_quadric.report.page import write_report as write_report

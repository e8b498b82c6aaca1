"""A page about rows and what a detector finds in them, for a person who would rather look.

``findings``
    one pass over the rows: scores, rows to draw, top outliers, what the parts add, drift
``page``
    from findings to one HTML file, with its pictures, its table and the library that draws them
"""

from pyod_quadric.report.page import write_report as write_report

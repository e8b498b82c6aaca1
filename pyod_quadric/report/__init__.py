"""An HTML report about rows and their scores by a detector.

``findings``
    one pass over the rows: scores, rows to draw, top outliers, shares of the parts, drift
``plots``
    its pictures as plotly figures, and the rows of its map and table
``page``
    from findings to one self-contained HTML file; untrusted text in it is escaped
"""

from pyod_quadric.report.page import write_report as write_report

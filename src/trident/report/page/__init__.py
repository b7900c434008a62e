"""The page of one or more runs: a report that opens by itself, and the same page while runs are still training.

reading     run directories -> what could be read of them, and what could not, in words
words       verdicts and the method's own measurements, in plain words
curves      records -> charts, thinned
content     all of it -> one tree of plain data
document    that tree -> one HTML file that runs nothing but its own scripts
server      the same document, kept up to date
web/        the page's own sources, readable as they are, and uPlot
"""

"""Plans, explanations, differences and receipts as people read them.

``units`` writes numbers, ``page`` holds what is shown as a value and shows it in a pipe or on a terminal, ``plans`` and
``compare`` turn the planner's values into pages, ``keys`` lists every key of a file, ``terminal`` decides how to print.
"""

"""What makes the site of the documentation beside mkdocs: `mkdocs build --strict` writes it.

Not a part of the package. Knows docs/, experiments/ and the packages' public names; nothing of
the product imports it.
"""

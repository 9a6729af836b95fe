"""The built-in operators. Any Operator in a module of this package is found by its name."""

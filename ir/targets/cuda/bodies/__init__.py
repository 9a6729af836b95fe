"""Main loops as bodies of `ir.kernel`: derived from the program, ordered, printed for people."""

"""Tests of everything. Several processes run them: in each one thread multiplies matrices."""

import os

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):  # before numpy is imported
    os.environ.setdefault(_name, "1")

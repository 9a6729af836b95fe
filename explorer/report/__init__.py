"""`tilewright report`: one self-contained page about a job, with charts in SVG."""

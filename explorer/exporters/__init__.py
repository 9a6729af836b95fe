"""How kernels become files that need nothing of Tilewright: an exporter for each kind of target."""

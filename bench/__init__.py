"""Measures Doorstep's speed, as figures and ratios in one run: `python -m bench [names…] [--store …] [--quick]`."""

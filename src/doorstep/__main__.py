"""`python -m doorstep` is the same as `doorstep`."""

from doorstep.cli.main import run

if __name__ == "__main__":
    run()

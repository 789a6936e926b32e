"""`python -m robustpll` is the command `robustpll`."""

from robustpll.cli import app

if __name__ == "__main__":
    app(prog_name="robustpll")

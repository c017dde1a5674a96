"""What penstock costs on this machine, beside what else there is. `python -m benches --help`."""

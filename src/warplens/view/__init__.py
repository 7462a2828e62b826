"""One file per view: HTML report, Perfetto, terminal, notebook, plots. Views draw; analyses compute."""

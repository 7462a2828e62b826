"""Views, one file each: HTML report, Perfetto, terminal, notebook, figures. Analyses compute; views draw."""

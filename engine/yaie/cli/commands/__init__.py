"""One module for each command; `yaie.cli.main` imports the one that is called."""

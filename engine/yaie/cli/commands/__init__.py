"""One module per command; `yaie.cli.main` imports only the module of the command that is called."""

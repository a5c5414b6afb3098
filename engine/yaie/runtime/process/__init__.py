"""The engine process: its main function, its watchdog, its end with its parent."""

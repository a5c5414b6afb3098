"""The engine process: its main function, its watchdog, its exit when its parent ends."""

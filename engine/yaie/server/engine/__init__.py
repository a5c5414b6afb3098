"""The engine process, seen from the HTTP process: started, supervised, sent requests, replaced."""

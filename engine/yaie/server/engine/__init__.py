"""The engine process as the server sees it: started, followed, asked, replaced."""

"""Who may ask, from where, and how slowly: checks that the engine's server and the router share.

Pure: they look at headers, sizes and times, and know nothing of the two web servers.
"""

"""HTTP: what stands before every route, the table of routes, and serving."""

"""Several runs together: as rows of a table, compared key by key, their failures counted, their curves as text or SVG."""

"""Why a run ended: signatures of failures as data, and an engine that tells the cause from what only followed from it."""

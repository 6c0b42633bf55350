"""Components that draw in the browser; each draws what a pure model sends it."""

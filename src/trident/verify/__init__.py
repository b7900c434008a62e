"""The theory lab: every testable claim of the paper, measured, and judged by the numbers alone."""

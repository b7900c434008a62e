"""What several algorithms share: actors, action heads, on-policy critics, K-FAC, behaviour cloning."""

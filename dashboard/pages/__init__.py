"""The pages: each places what its model says, and computes nothing itself."""

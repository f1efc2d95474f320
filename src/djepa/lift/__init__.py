"""Write a decision into predicted latents, so that native distances reproduce its order."""

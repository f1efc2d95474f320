"""Writing decisions back into future latents."""

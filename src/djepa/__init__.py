"""D-JEPA: decision-aligned latent world models.

Importing the package is cheap: torch and the simulators load when something needs them.
"""

__version__ = "0.1.0"

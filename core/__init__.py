"""The arena and its ledger: the library that an inference engine embeds.

Import from the modules of this package (`onearena.core.geometry`, `onearena.core.plan`, ...). The
package itself imports nothing, so that pure integer code never pays for torch or numba.
"""

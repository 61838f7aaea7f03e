"""AMD GPU code executed on a CPU: hipRTC without a GPU, a translator of its machine code, and a stand-in HIP runtime.

Nothing here imports the rest of the toolkit.
"""

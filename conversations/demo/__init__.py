"""A scripted agent, to see the store at work without a model provider.

The model is a stand-in with recorded replies (`model`, `script`); the tools are real (`tools`), and
so is everything that the agent (`agent`) appends and reads.
"""

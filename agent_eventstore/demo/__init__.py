"""A scripted agent, to see the store at work without a model provider.

The model is a stand-in with recorded replies (`script`); its tools are real (both in `model`), and
so is everything that the agent (`agent`) records and reads. It also runs in a process of its own,
which is killed (`killing`).
"""

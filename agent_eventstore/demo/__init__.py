"""A scripted agent, which shows the store at work without a model provider.

The model plays recorded replies (`script`). Its tools are real (both in `model`), as is everything
that the agent (`agent`) records and reads. The agent can also run in a separate process, which is
killed (`killing`).
"""

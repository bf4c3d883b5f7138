"""Google's Gemini: streams, answers, contents and interactions."""

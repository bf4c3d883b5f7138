"""Amazon Bedrock's Converse: streams, answers and content blocks."""

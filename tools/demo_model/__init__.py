"""What `tools/train_demo_model.py` is made of: the requests, the dialogues, the tokenizer, the network, the export."""

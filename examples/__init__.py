"""Short scripts: train and record, adopt a folder, deploy, without PyTorch; and a service."""

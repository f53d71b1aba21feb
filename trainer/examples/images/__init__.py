"""Images: a torchvision network on an image folder."""

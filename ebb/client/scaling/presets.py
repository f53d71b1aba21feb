"""Programs whose scaling is worth knowing: those of the articles, and a language model. Pure.

    PRESETS["resnet50"].arguments(16)       # of the launcher, for a job of 16 GPUs

The batch of a GPU stays what it is at any number of them, as in the articles, so the global batch grows with the job. Each is one
epoch of one of the reference trainers, which are in the platform's image; its data are named by --data.
"""

from dataclasses import dataclass

GPUS = "{gpus}"  # in an own program's words: how many of them


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A program by its words, in which `{gpus}` and `{batch}` stand for the GPUs of the job and its global batch."""

    name: str
    title: str
    words: tuple[str, ...]
    batch_of_gpu: int
    data: str  # that it needs

    def arguments(self, gpus: int) -> tuple[str, ...]:
        known = {GPUS: str(gpus), "{batch}": str(self.batch_of_gpu * gpus)}
        return tuple(known.get(word, word) for word in self.words)


_IMAGES = ("-m", "trainer.images", "--epochs", "1", "--global-batch", "{batch}", "--debug-images", "0")
_IMAGE_DATA = "train/<class>/<images> and val/<class>/<images>, or shards of them"
PRESETS = {
    preset.name: preset
    for preset in (
        Preset(
            name="resnet50",
            title="ResNet-50 on images of 224 pixels",
            words=(*_IMAGES, "--arch", "resnet50", "--max-micro-batch", "64"),
            batch_of_gpu=64,
            data=_IMAGE_DATA,
        ),
        Preset(
            name="efficientnet_b7",
            title="EfficientNet-B7 on images of 600 pixels",
            words=(*_IMAGES, "--arch", "efficientnet_b7", "--image-size", "600", "--max-micro-batch", "8"),
            batch_of_gpu=8,
            data=_IMAGE_DATA,
        ),
        Preset(
            name="text_200m",
            title="a language model of 200 million parameters, windows of 1024 tokens",
            words=(
                *("-m", "trainer.text.train", "--size", "200m", "--epochs", "1"),
                *("--global-batch", "{batch}", "--max-micro-batch", "16"),
            ),
            batch_of_gpu=16,
            data="train.bin and val.bin, as `python -m trainer.text DIR` writes them",
        ),
    )
}

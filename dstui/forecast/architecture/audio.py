"""Models that hear: the thinkers of Qwen's Omni models, Qwen2-Audio and Voxtral. Sources: transformers' modeling_*.py of release 5.23."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dstui.forecast.architecture.composed import language_model, qwen3_tower, qwen_tower
from dstui.forecast.architecture.config import Config
from dstui.forecast.architecture.tensors import Architecture, Census


def qwen_omni(c: Config) -> Architecture:
    """Build what is trained of Qwen2.5-Omni and Qwen3-Omni, the thinker: an audio encoder, a vision transformer, and a decoder."""
    kind = c.text("model_type")
    whole = c.section("thinker_config") if c.has("thinker_config") else c
    moe = kind.startswith("qwen3")
    text = language_model(whole.text_config(), "qwen3_moe" if moe else "qwen2", fixed=True)
    census, vision, audio = Census(), whole.section("vision_config"), whole.section("audio_config")
    h = audio.number("d_model", default=1280)
    if moe:
        qwen3_tower(census, vision, text.shape.hidden, 3)
        _hears(census, audio, h, ("q_proj", "k_proj", "v_proj", "out_proj"))
        _images_of_sound(census, audio, h, text.shape.hidden)
    else:
        qwen_tower(census, vision, text.shape.hidden, old=False)
        _waves(census, audio, h)
        _hears(census, audio, h, ("q_proj", "v_proj", "out_proj"))
        out = audio.number("output_dim", default=text.shape.hidden)
        census.add("audio_bos_eos_token", "embedding", 2, out)
        census.linear("proj", h, out, True)
    return Architecture(kind, (*text.tensors, *census.tensors), text.shape, text.idle, text.groups)


def qwen2_audio(c: Config) -> Architecture:
    """Build Qwen2-Audio: the encoder of Whisper, a projection, and Qwen2."""
    text, census, audio = language_model(c.text_config(), "qwen2"), Census(), c.section("audio_config")
    h = audio.number("d_model", default=1280)
    _whispers_encoder(census, audio, h)
    census.linear("linear", h, text.shape.hidden, True)
    return Architecture("qwen2_audio", (*text.tensors, *census.tensors), text.shape, text.idle, text.groups)


def voxtral(c: Config) -> Architecture:
    """Build Voxtral: the encoder of Whisper, a projection of several frames, and LLaMA."""
    text, census, audio = language_model(c.text_config(), "llama"), Census(), c.section("audio_config")
    _whispers_encoder(census, audio, audio.number("hidden_size", "d_model", default=1280))
    census.linear("linear_1", audio.number("intermediate_size", default=5120), text.shape.hidden)
    census.linear("linear_2", text.shape.hidden, text.shape.hidden)
    return Architecture("voxtral", (*text.tensors, *census.tensors), text.shape, text.idle, text.groups)


def _whispers_encoder(census: Census, audio: Config, h: int) -> None:
    _waves(census, audio, h)
    census.add("embed_positions", "embedding", audio.number("max_source_positions", default=1500), h)
    _hears(census, audio, h, ("q_proj", "v_proj", "out_proj"))


def _waves(census: Census, audio: Config, h: int) -> None:
    """Add two convolutions over the frames."""
    census.add("conv1", "other", h, audio.number("num_mel_bins", default=128) * 3 + 1)
    census.add("conv2", "other", h, h * 3 + 1)


def _hears(census: Census, audio: Config, h: int, biased: tuple[str, ...]) -> None:
    """Add the layers of an encoder like Whisper's. `biased`: the linear layers of the attention that have a bias."""
    layers = audio.number("encoder_layers", "num_hidden_layers", default=32, most=10_000)
    width = audio.number("encoder_ffn_dim", "intermediate_size", default=5120)
    for module in ("q_proj", "k_proj", "v_proj", "out_proj"):
        census.linear(module, h, h, module in biased, layers)
    census.linear("fc1", h, width, True, layers)
    census.linear("fc2", width, h, True, layers)
    census.norm("layer_norm", h, True, 2 * layers + 1)


def _images_of_sound(census: Census, audio: Config, h: int, hidden: int) -> None:
    """Add three convolutions over spectrograms, each of which halves the frequencies, and the projection of Qwen3-Omni."""
    channels, bins = audio.number("downsample_hidden_size", default=480), audio.number("num_mel_bins", default=128)
    census.add("conv2d1", "other", channels, 9 + 1)
    for module in ("conv2d2", "conv2d3"):
        census.add(module, "other", channels, channels * 9 + 1)
    census.linear("conv_out", channels * -(-bins // 8), h)
    census.linear("proj1", h, h, True)
    census.linear("proj2", h, audio.number("output_dim", default=hidden), True)


AUDIO: Mapping[str, Callable[[Config], Architecture]] = {
    "qwen2_5_omni": qwen_omni,
    "qwen2_5_omni_thinker": qwen_omni,
    "qwen3_omni_moe": qwen_omni,
    "qwen3_omni_moe_thinker": qwen_omni,
    "qwen2_audio": qwen2_audio,
    "voxtral": voxtral,
}

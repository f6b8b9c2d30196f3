"""Configurations of architectures of 2025 and 2026, which transformers builds on the meta device."""

from __future__ import annotations

from typing import Any

from shapes import DEEPSEEK, GLM_5, GLM_MOE, IDS, MOE, NO_HEAD_DIM, NO_KV, QWEN3_TOWER, SMALL, VIT

EARS = {"d_model": 40, "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 64, "num_mel_bins": 20}
THINKER = {
    "text_config": {**NO_HEAD_DIM, **IDS},
    "vision_config": {"depth": 2, "hidden_size": 48, "intermediate_size": 120, "num_heads": 4, "out_hidden_size": 96},
    "audio_config": {**EARS, "output_dim": 96},
}
MOE_THINKER = {
    "text_config": {**SMALL, **IDS, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24},
    "vision_config": QWEN3_TOWER,
    "audio_config": {**EARS, "output_dim": 96, "downsample_hidden_size": 24},
}
V4 = {
    **{key: value for key, value in SMALL.items() if key not in ("num_key_value_heads", "intermediate_size")},
    **IDS,
    "num_hidden_layers": 4,
    "moe_intermediate_size": 24,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "q_lora_rank": 20,
    "o_groups": 3,
    "o_lora_rank": 10,
    "index_n_heads": 3,
    "index_head_dim": 12,
    "qk_rope_head_dim": 8,
}
GLM_TOWER = {
    "depth": 2,
    "hidden_size": 48,
    "num_heads": 4,
    "intermediate_size": 64,
    "out_hidden_size": 96,
    "patch_size": 4,
    "image_size": 16,
}
UNIFIED = {**SMALL, "num_hidden_layers": 8, "global_head_dim": 32, "attention_k_eq_v": True, "num_global_key_value_heads": 1}
MAMBA = {"mamba_n_heads": 12, "mamba_d_head": 16, "mamba_d_state": 8}
GRANITE = {
    **NO_KV,
    **IDS,
    **MAMBA,
    "num_key_value_heads": 2,
    "layer_types": ["mamba", "attention", "mamba"],
    "shared_intermediate_size": 100,
}
NEMOTRON = {
    **{key: value for key, value in SMALL.items() if key != "num_hidden_layers"},
    **IDS,
    "layers_block_type": ["mamba", "attention", "mlp", "mamba", "moe"],
    "mamba_num_heads": 4,
    "mamba_head_dim": 16,
    "ssm_state_size": 8,
    "n_groups": 2,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "moe_shared_expert_intermediate_size": 48,
}
LFM = {**NO_HEAD_DIM, **IDS, "layer_types": ["conv", "full_attention", "conv"]}
ERNIE_VL = {
    "text_config": {
        **NO_HEAD_DIM,
        **IDS,
        "hidden_size": 256,
        "num_attention_heads": 2,
        "moe_num_experts": 4,
        "moe_k": 2,
        "moe_intermediate_size": [56, 24],
    },
    "vision_config": {"depth": 2, "hidden_size": 48, "num_heads": 4, "intermediate_size": 64, "patch_size": 4},
}

NEWER: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("qwen2_5_omni_thinker", "Qwen2_5OmniThinkerForConditionalGeneration", THINKER),
    ("qwen3_omni_moe_thinker", "Qwen3OmniMoeThinkerForConditionalGeneration", MOE_THINKER),
    ("qwen2_audio", "Qwen2AudioForConditionalGeneration", {"text_config": {**NO_HEAD_DIM, "model_type": "qwen2"}, "audio_config": EARS}),
    (
        "voxtral",
        "VoxtralForConditionalGeneration",
        {
            "text_config": {**SMALL, "model_type": "llama"},
            "audio_config": {"hidden_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 160, "num_mel_bins": 20},
        },
    ),
    ("deepseek_v4", "DeepseekV4ForCausalLM", {**V4, "compress_ratios": [0, 128, 4, 128, 0]}),
    ("deepseek_v4", "DeepseekV4ForCausalLM", {**V4, "hc_mult": 2, "tie_word_embeddings": True}),
    ("deepseek_v32", "DeepseekV32ForCausalLM", {**GLM_5, "first_k_dense_replace": 2}),
    ("glm4_moe_lite", "Glm4MoeLiteForCausalLM", {**DEEPSEEK, **IDS}),
    ("mistral4", "Mistral4ForCausalLM", {**DEEPSEEK, **IDS}),
    ("minicpm3", "MiniCPM3ForCausalLM", {**DEEPSEEK, **IDS, "v_head_dim": None, "attention_bias": True, "mlp_bias": True}),
    ("dots1", "Dots1ForCausalLM", {**GLM_MOE, **IDS, "first_k_dense_replace": 1}),
    ("afmoe", "AfmoeForCausalLM", {**MOE, **IDS, "num_dense_layers": 1, "attention_bias": True}),
    ("phimoe", "PhimoeForCausalLM", {**MOE, **IDS, "attention_bias": True, "lm_head_bias": True}),
    ("exaone4", "Exaone4ForCausalLM", SMALL | IDS),
    ("apertus", "ApertusForCausalLM", {**SMALL, **IDS, "attention_bias": True}),
    ("arcee", "ArceeForCausalLM", {**SMALL, **IDS, "mlp_bias": True}),
    ("helium", "HeliumForCausalLM", {**SMALL, **IDS, "attention_bias": True}),
    ("glm4v", "Glm4vForConditionalGeneration", {"text_config": NO_HEAD_DIM | IDS, "vision_config": GLM_TOWER}),
    ("glm46v", "Glm46VForConditionalGeneration", {"text_config": {**NO_HEAD_DIM, **IDS, "model_type": "glm4v_text"}, "vision_config": {**GLM_TOWER, "model_type": "glm4v_vision", "attention_bias": True}}),
    ("glm4v_moe", "Glm4vMoeForConditionalGeneration", {"text_config": {**GLM_MOE, **IDS, "first_k_dense_replace": 1}, "vision_config": GLM_TOWER}),
    ("ernie4_5_vl_moe", "Ernie4_5_VLMoeForConditionalGeneration", ERNIE_VL),
    ("paddleocr_vl", "PaddleOCRVLForConditionalGeneration", {"text_config": SMALL | IDS, "vision_config": VIT}),
    ("kimi_k25", "Kimi_K25ForConditionalGeneration", {"text_config": {**DEEPSEEK, **IDS, "model_type": "deepseek_v3"}, "vision_config": {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "patch_size": 4, "pos_emb_height": 6, "pos_emb_width": 5}, "projection_hidden_size": 48, "tie_word_embeddings": False}),
    ("gemma4_unified", "Gemma4UnifiedForConditionalGeneration", {"text_config": UNIFIED, "vision_config": {"mm_embed_dim": 48, "output_proj_dims": 48, "patch_size": 4}, "audio_config": {"audio_embed_dim": 20}}),
    ("gemma4_unified_text", "Gemma4UnifiedForCausalLM", UNIFIED),
    ("lfm2", "Lfm2ForCausalLM", LFM),
    ("lfm2", "Lfm2ForCausalLM", {**LFM, "block_auto_adjust_ff_dim": False, "conv_bias": True, "tie_word_embeddings": False}),
    ("lfm2_moe", "Lfm2MoeForCausalLM", {**LFM, "moe_intermediate_size": 24, "num_dense_layers": 1, "num_experts": 4, "num_experts_per_tok": 2}),
    ("granitemoehybrid", "GraniteMoeHybridForCausalLM", {**GRANITE, "num_local_experts": 0}),
    ("granitemoehybrid", "GraniteMoeHybridForCausalLM", {**GRANITE, "num_local_experts": 4, "num_experts_per_tok": 2, "mamba_proj_bias": True}),
    ("falcon_h1", "FalconH1ForCausalLM", {**SMALL, **IDS, **MAMBA, "mamba_d_ssm": 192, "mamba_rms_norm": True}),
    ("nemotron_h", "NemotronHForCausalLM", NEMOTRON),
    ("nemotron_h", "NemotronHForCausalLM", {**NEMOTRON, "moe_latent_size": 32, "mlp_bias": True, "use_bias": True, "attention_bias": True}),
)  # fmt: skip
"""model_type, the class that transformers builds, and values that differ from its defaults."""

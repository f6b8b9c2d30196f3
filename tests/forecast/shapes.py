"""Configurations that transformers builds on the meta device: three layers of each model family, with the options that change tensors."""

from __future__ import annotations

from typing import Any

SMALL: dict[str, Any] = {
    "num_hidden_layers": 3,
    "hidden_size": 96,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 200,
    "vocab_size": 311,
}
GPT2 = {"n_layer": 3, "n_embd": 96, "n_head": 6, "vocab_size": 311, "n_positions": 64}
OPT = {**SMALL, "ffn_dim": 200, "word_embed_proj_dim": 96, "max_position_embeddings": 64}
MOE = {**SMALL, "num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 56}
BERT = {"num_hidden_layers": 3, "hidden_size": 96, "num_attention_heads": 6, "intermediate_size": 200, "vocab_size": 311}
DISTILBERT = {"n_layers": 3, "dim": 96, "n_heads": 6, "hidden_dim": 200, "vocab_size": 311}
BART = {"encoder_layers": 2, "decoder_layers": 3, "d_model": 96, "encoder_ffn_dim": 200, "decoder_ffn_dim": 220, "vocab_size": 311}
BART |= {"encoder_attention_heads": 6, "decoder_attention_heads": 6}
T5 = {"num_layers": 2, "num_decoder_layers": 3, "d_model": 96, "d_ff": 200, "num_heads": 6, "d_kv": 16, "vocab_size": 311}
VIT = {"num_hidden_layers": 3, "hidden_size": 96, "num_attention_heads": 6, "intermediate_size": 200, "image_size": 32, "patch_size": 8}
NO_KV = {key: value for key, value in SMALL.items() if key not in ("num_key_value_heads", "head_dim")}
NO_HEAD_DIM = {key: value for key, value in SMALL.items() if key != "head_dim"}
DEEPSEEK = {
    **NO_KV,
    "moe_intermediate_size": 56,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "first_k_dense_replace": 1,
}
DEEPSEEK |= {"q_lora_rank": 40, "kv_lora_rank": 24, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 20}
FALCON = {**NO_KV, "ffn_hidden_size": 384}

MODERN = {
    "vocab_size": 311,
    "hidden_size": 96,
    "intermediate_size": 120,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "cls_token_id": 1,
    "sep_token_id": 2,
}
NEXT = {
    **SMALL,
    "num_hidden_layers": 4,
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
    "num_experts": 3,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 12,
    "shared_expert_intermediate_size": 20,
}
LLAMA4 = {**SMALL, "num_hidden_layers": 4, "intermediate_size": 24, "intermediate_size_mlp": 56, "num_local_experts": 3}
QWEN3_TOWER = {
    "depth": 3,
    "hidden_size": 48,
    "num_heads": 4,
    "intermediate_size": 64,
    "out_hidden_size": 96,
    "patch_size": 4,
    "num_position_embeddings": 36,
    "deepstack_visual_indexes": [0, 2],
}
IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
DENSE_35 = {**NEXT, "intermediate_size": 200}
QWEN35_TOWER = {key: value for key, value in QWEN3_TOWER.items() if key != "deepstack_visual_indexes"}
WHISPER = {**BART, "num_mel_bins": 20, "max_source_positions": 50, "max_target_positions": 30, **IDS, "decoder_start_token_id": 1}
DEBERTA = {
    **BERT,
    "relative_attention": True,
    "pos_att_type": ["p2c", "c2p"],
    "position_biased_input": False,
    "type_vocab_size": 0,
    "max_position_embeddings": 64,
}
DEBERTA_V2 = {**DEBERTA, "position_buckets": 32, "norm_rel_ebd": "layer_norm", "share_att_key": True}
GLM_MOE = {
    **SMALL,
    "attention_bias": True,
    "moe_intermediate_size": 56,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
}
DBRX = {
    "d_model": 96,
    "n_heads": 6,
    "n_layers": 3,
    "max_seq_len": 64,
    "vocab_size": 311,
    "attn_config": {"kv_n_heads": 2, "clip_qkv": 8, "rope_theta": 500000.0},
    "ffn_config": {"ffn_hidden_size": 56, "moe_num_experts": 4, "moe_top_k": 2},
}
PIXTRAL = {
    "model_type": "pixtral",
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": 32,
    "patch_size": 8,
}
ERNIE = {**NO_HEAD_DIM, **IDS, "moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 56}
INTERN_VIT = {key: value for key, value in VIT.items() if key not in ("image_size", "patch_size")} | {
    "image_size": [32, 32],
    "patch_size": [8, 8],
}
GEMMA4 = {**SMALL, "num_hidden_layers": 12, "hidden_size_per_layer_input": 24, "vocab_size_per_layer_input": 300, "global_head_dim": 32}
GEMMA4_MOE = {
    **GEMMA4,
    "hidden_size_per_layer_input": 0,
    "attention_k_eq_v": True,
    "num_global_key_value_heads": 1,
    "enable_moe_block": True,
}
GEMMA4_MOE |= {"num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 40}
GEMMA4_TOWER = {
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 12,
    "intermediate_size": 64,
}
GLM_5 = {**DEEPSEEK, **IDS, "index_n_heads": 3, "index_head_dim": 12}

CASES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("gpt2", "GPT2LMHeadModel", GPT2),
    ("gpt2", "GPT2LMHeadModel", {**GPT2, "n_inner": 120}),
    ("gpt2", "GPT2ForSequenceClassification", GPT2),
    ("gpt_bigcode", "GPTBigCodeForCausalLM", GPT2),
    ("gpt_bigcode", "GPTBigCodeForCausalLM", {**GPT2, "multi_query": False}),
    ("gptj", "GPTJForCausalLM", {**GPT2, "rotary_dim": 8}),
    ("gpt_neo", "GPTNeoForCausalLM", {"num_layers": 4, "attention_types": [[["global", "local"], 2]], "hidden_size": 96, "num_heads": 6, "vocab_size": 311}),
    ("opt", "OPTForCausalLM", OPT),
    ("opt", "OPTForCausalLM", {**OPT, "word_embed_proj_dim": 48, "do_layer_norm_before": False}),
    ("opt", "OPTForCausalLM", {**OPT, "enable_bias": False}),
    ("bloom", "BloomForCausalLM", {"hidden_size": 96, "n_layer": 3, "n_head": 6, "vocab_size": 311}),
    ("gpt_neox", "GPTNeoXForCausalLM", NO_KV),
    ("gpt_neox", "GPTNeoXForCausalLM", {**NO_KV, "attention_bias": False, "tie_word_embeddings": True}),
    ("falcon", "FalconForCausalLM", FALCON),
    ("falcon", "FalconForCausalLM", {**FALCON, "new_decoder_architecture": True, "num_kv_heads": 2}),
    ("falcon", "FalconForCausalLM", {**FALCON, "bias": True, "parallel_attn": False, "alibi": True, "multi_query": False}),
    ("llama", "LlamaForCausalLM", SMALL),
    ("llama", "LlamaForCausalLM", {**SMALL, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
    ("llama", "LlamaForSequenceClassification", {**SMALL, "num_labels": 5}),
    ("mistral", "MistralForCausalLM", SMALL),
    ("mixtral", "MixtralForCausalLM", MOE),
    ("qwen2", "Qwen2ForCausalLM", SMALL),
    ("qwen2_moe", "Qwen2MoeForCausalLM", {**MOE, "shared_expert_intermediate_size": 72}),
    ("qwen3", "Qwen3ForCausalLM", SMALL),
    ("qwen3_moe", "Qwen3MoeForCausalLM", MOE),
    ("qwen3_moe", "Qwen3MoeForCausalLM", {**MOE, "num_hidden_layers": 5, "decoder_sparse_step": 2, "mlp_only_layers": [1]}),
    ("olmo", "OlmoForCausalLM", NO_KV),
    ("olmo2", "Olmo2ForCausalLM", NO_KV | {"num_key_value_heads": 2}),
    ("olmoe", "OlmoeForCausalLM", NO_KV | {"num_experts": 4, "num_experts_per_tok": 2}),
    ("gemma", "GemmaForCausalLM", SMALL),
    ("gemma2", "Gemma2ForCausalLM", SMALL),
    ("gemma3_text", "Gemma3ForCausalLM", SMALL),
    ("phi", "PhiForCausalLM", NO_KV),
    ("phi", "PhiForCausalLM", {**NO_KV, "qk_layernorm": True, "num_key_value_heads": 2}),
    ("phi3", "Phi3ForCausalLM", {**NO_KV, "num_key_value_heads": 2, "pad_token_id": 0}),
    ("starcoder2", "Starcoder2ForCausalLM", NO_KV | {"num_key_value_heads": 2, "bos_token_id": 0, "eos_token_id": 0}),
    ("starcoder2", "Starcoder2ForCausalLM", NO_KV | {"use_bias": False, "bos_token_id": 0, "eos_token_id": 0}),
    ("granite", "GraniteForCausalLM", NO_KV | {"num_key_value_heads": 2}),
    ("granitemoe", "GraniteMoeForCausalLM", NO_KV | {"num_local_experts": 4, "num_experts_per_tok": 2}),
    ("cohere", "CohereForCausalLM", NO_KV),
    ("cohere", "CohereForCausalLM", {**NO_KV, "use_qk_norm": True, "num_key_value_heads": 2}),
    ("cohere2", "Cohere2ForCausalLM", SMALL),
    ("stablelm", "StableLmForCausalLM", NO_KV),
    ("stablelm", "StableLmForCausalLM", {**NO_KV, "qk_layernorm": True, "use_parallel_residual": True, "use_qkv_bias": True}),
    ("smollm3", "SmolLM3ForCausalLM", NO_KV | {"num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0}),
    ("glm4", "Glm4ForCausalLM", SMALL | {"pad_token_id": 0, "eos_token_id": 0}),
    ("bert", "BertForMaskedLM", BERT),
    ("bert", "BertForPreTraining", BERT),
    ("bert", "BertForTokenClassification", {**BERT, "num_labels": 7}),
    ("roberta", "RobertaForMaskedLM", BERT),
    ("roberta", "RobertaForSequenceClassification", BERT),
    ("xlm-roberta", "XLMRobertaForQuestionAnswering", BERT),
    ("distilbert", "DistilBertForMaskedLM", DISTILBERT),
    ("distilbert", "DistilBertForSequenceClassification", DISTILBERT),
    ("bart", "BartForConditionalGeneration", BART),
    ("bart", "BartForSequenceClassification", BART),
    ("t5", "T5ForConditionalGeneration", T5),
    ("t5", "T5ForConditionalGeneration", {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
    ("mt5", "MT5ForConditionalGeneration", T5),
    ("vit", "ViTModel", VIT),
    ("vit", "ViTForImageClassification", {**VIT, "num_labels": 11}),
    ("gemma3", "Gemma3ForConditionalGeneration", {"text_config": {**SMALL, "model_type": "gemma3_text"}, "vision_config": {**VIT, "model_type": "siglip_vision_model"}}),
    ("mpt", "MptForCausalLM", {"n_layers": 3, "d_model": 96, "n_heads": 6, "vocab_size": 311}),
    ("codegen", "CodeGenForCausalLM", {**GPT2, "rotary_dim": 8}),
    ("nemotron", "NemotronForCausalLM", SMALL),
    ("nemotron", "NemotronForCausalLM", {**SMALL, "attention_bias": True, "mlp_bias": True}),
    ("deepseek_v2", "DeepseekV2ForCausalLM", DEEPSEEK),
    ("deepseek_v2", "DeepseekV2ForCausalLM", {**DEEPSEEK, "q_lora_rank": None, "attention_bias": True, "first_k_dense_replace": 0}),
    ("deepseek_v3", "DeepseekV3ForCausalLM", DEEPSEEK),
    ("deepseek_v3", "DeepseekV3ForCausalLM", {**DEEPSEEK, "n_shared_experts": 3, "first_k_dense_replace": 2}),
    ("gpt_oss", "GptOssForCausalLM", {**SMALL, "num_local_experts": 4, "num_experts_per_tok": 2}),
    ("gpt_oss", "GptOssForSequenceClassification", {**SMALL, "num_local_experts": 4, "attention_bias": False, "num_labels": 5, "pad_token_id": 0}),
    ("clip", "CLIPModel", {"text_config": {**BERT, "max_position_embeddings": 24}, "vision_config": VIT, "projection_dim": 40}),
    ("clip_vision_model", "CLIPVisionModel", VIT),
    ("llava", "LlavaForConditionalGeneration", {"text_config": {**SMALL, "model_type": "llama"}, "vision_config": {**VIT, "model_type": "clip_vision_model"}}),
    (
        "llava",
        "LlavaForConditionalGeneration",
        {
            "text_config": {**SMALL, "model_type": "qwen2", "tie_word_embeddings": True},
            "vision_config": {**VIT, "model_type": "siglip_vision_model"},
            "vision_feature_layer": [-2, -1],
            "multimodal_projector_bias": False,
        },
    ),
    ("llava_next", "LlavaNextForConditionalGeneration", {"text_config": {**SMALL, "model_type": "mistral"}, "vision_config": {**VIT, "model_type": "clip_vision_model"}}),
    ("qwen2_vl", "Qwen2VLForConditionalGeneration", {"text_config": NO_HEAD_DIM, "vision_config": {"depth": 2, "embed_dim": 48, "num_heads": 4, "hidden_size": 96}}),
    ("qwen2_vl", "Qwen2VLForConditionalGeneration", {"text_config": NO_HEAD_DIM, "tie_word_embeddings": True, "vision_config": {"depth": 2, "embed_dim": 48, "num_heads": 4, "hidden_size": 96}}),
    (
        "qwen2_5_vl",
        "Qwen2_5_VLForConditionalGeneration",
        {"text_config": NO_HEAD_DIM, "vision_config": {"depth": 2, "hidden_size": 48, "intermediate_size": 120, "num_heads": 4, "out_hidden_size": 96}},
    ),
    ("modernbert", "ModernBertForMaskedLM", MODERN),
    ("modernbert", "ModernBertModel", MODERN),
    ("modernbert", "ModernBertForSequenceClassification", {**MODERN, "num_labels": 5, "attention_bias": True, "mlp_bias": True, "norm_bias": True}),
    ("mamba", "MambaForCausalLM", {"vocab_size": 311, "hidden_size": 96, "num_hidden_layers": 3}),
    ("mamba", "MambaForCausalLM", {"vocab_size": 311, "hidden_size": 96, "num_hidden_layers": 2, "state_size": 8, "expand": 3, "use_bias": True, "use_conv_bias": False, "tie_word_embeddings": False}),
    ("qwen3_next", "Qwen3NextForCausalLM", NEXT),
    ("qwen3_next", "Qwen3NextForCausalLM", {**NEXT, "layer_types": ["full_attention", "linear_attention"] * 2, "mlp_only_layers": [1], "attention_bias": True}),
    ("llama4_text", "Llama4ForCausalLM", LLAMA4),
    ("llama4_text", "Llama4ForCausalLM", {**LLAMA4, "interleave_moe_layer_step": 2}),
    ("llama4", "Llama4ForConditionalGeneration", {"text_config": LLAMA4, "vision_config": {**VIT, "vision_output_dim": 40, "projector_input_dim": 32, "projector_output_dim": 40}}),
    ("qwen3_vl", "Qwen3VLForConditionalGeneration", {"text_config": SMALL, "vision_config": QWEN3_TOWER}),
    ("qwen3_vl", "Qwen3VLForConditionalGeneration", {"text_config": SMALL, "tie_word_embeddings": True, "vision_config": {**QWEN3_TOWER, "deepstack_visual_indexes": [1]}}),
    ("qwen3_vl_moe", "Qwen3VLMoeForConditionalGeneration", {"text_config": {**SMALL, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}, "vision_config": QWEN3_TOWER}),
    (
        "mllama",
        "MllamaForConditionalGeneration",
        {
            "text_config": {**SMALL, "head_dim": 16, "num_hidden_layers": 4, "cross_attention_layers": [1, 3], "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
            "vision_config": {**VIT, "attention_heads": 2, "num_global_layers": 2, "vision_output_dim": 192, "intermediate_layers_indices": [0], "max_num_tiles": 2, "supported_aspect_ratios": [[1, 1], [1, 2]]},
        },
    ),
    ("idefics3", "Idefics3ForConditionalGeneration", {"text_config": {**SMALL, "model_type": "llama", "pad_token_id": 0}, "vision_config": VIT, "scale_factor": 2}),
    ("mistral3", "Mistral3ForConditionalGeneration", {"text_config": {**SMALL, "model_type": "mistral"}, "vision_config": PIXTRAL, "tie_word_embeddings": False}),
    ("gemma3n_text", "Gemma3nForCausalLM", {**SMALL, "num_hidden_layers": 10, "num_kv_shared_layers": 3, "vocab_size_per_layer_input": 300, "hidden_size_per_layer_input": 24, "laurel_rank": 8}),
    ("gemma4_text", "Gemma4ForCausalLM", {**GEMMA4, "num_kv_shared_layers": 5, "use_double_wide_mlp": True}),
    ("gemma4_text", "Gemma4ForCausalLM", GEMMA4_MOE),
    ("gemma4_text", "Gemma4ForCausalLM", {**GEMMA4, "num_hidden_layers": 4, "layer_types": ["full_attention", "sliding_attention"] * 2, "tie_word_embeddings": False}),
    ("gemma4", "Gemma4ForConditionalGeneration", {"text_config": GEMMA4_MOE, "vision_config": GEMMA4_TOWER, "audio_config": None}),
    ("gemma4", "Gemma4ForConditionalGeneration", {"text_config": GEMMA4, "vision_config": GEMMA4_TOWER, "audio_config": {"hidden_size": 64, "num_hidden_layers": 2, "output_proj_dims": 40}}),
    ("ministral3", "Ministral3ForCausalLM", SMALL),
    ("olmo3", "Olmo3ForCausalLM", NO_KV | {"num_key_value_heads": 2}),
    ("glm", "GlmForCausalLM", {**SMALL, **IDS, "attention_bias": True}),
    ("glm4_moe", "Glm4MoeForCausalLM", {**GLM_MOE, "use_qk_norm": True, "first_k_dense_replace": 1}),
    ("glm4_moe", "Glm4MoeForCausalLM", {**GLM_MOE, "first_k_dense_replace": 0, "n_shared_experts": 2}),
    ("ernie4_5", "Ernie4_5ForCausalLM", SMALL | IDS),
    ("ernie4_5", "Ernie4_5ForCausalLM", {**SMALL, **IDS, "use_bias": True, "tie_word_embeddings": False}),
    ("ernie4_5_moe", "Ernie4_5_MoeForCausalLM", ERNIE),
    ("ernie4_5_moe", "Ernie4_5_MoeForCausalLM", {**ERNIE, "num_hidden_layers": 6, "moe_layer_interval": 2, "moe_layer_end_index": 4, "moe_num_shared_experts": 0, "tie_word_embeddings": False}),
    ("glm_moe_dsa", "GlmMoeDsaForCausalLM", GLM_5),
    ("glm_moe_dsa", "GlmMoeDsaForCausalLM", {**GLM_5, "indexer_types": ["full", "shared", "full"], "first_k_dense_replace": 0}),
    ("internvl", "InternVLForConditionalGeneration", {"text_config": {**SMALL, "model_type": "qwen3"}, "vision_config": INTERN_VIT, "tie_word_embeddings": False}),
    ("internvl", "InternVLForConditionalGeneration", {"text_config": {**NO_HEAD_DIM, "model_type": "qwen2"}, "vision_config": {**INTERN_VIT, "attention_bias": True, "use_qk_norm": True, "norm_type": "rms_norm"}, "tie_word_embeddings": True}),
    ("hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM", {**SMALL, **IDS, "num_experts": 4, "moe_topk": 2}),
    ("hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", {**SMALL, **IDS, "tie_word_embeddings": True}),
    ("dbrx", "DbrxForCausalLM", DBRX),
    ("seed_oss", "SeedOssForCausalLM", SMALL | IDS),
    ("minimax_m2", "MiniMaxM2ForCausalLM", {**SMALL, **IDS, "num_local_experts": 4, "num_experts_per_tok": 2}),
    ("qwen3_5_text", "Qwen3_5ForCausalLM", DENSE_35),
    ("qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", NEXT),
    ("qwen3_5", "Qwen3_5ForConditionalGeneration", {"text_config": {**DENSE_35, "tie_word_embeddings": True}, "vision_config": QWEN35_TOWER, "tie_word_embeddings": True}),
    ("qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration", {"text_config": NEXT, "vision_config": QWEN35_TOWER}),
    ("whisper", "WhisperForConditionalGeneration", WHISPER),
    ("deberta", "DebertaForMaskedLM", DEBERTA),
    ("deberta", "DebertaForSequenceClassification", {**DEBERTA, "position_biased_input": True, "type_vocab_size": 3, "pos_att_type": ["c2p"]}),
    ("deberta-v2", "DebertaV2ForMaskedLM", DEBERTA_V2),
    ("deberta-v2", "DebertaV2ForSequenceClassification", {**DEBERTA_V2, "num_labels": 5, "conv_kernel_size": 3, "share_att_key": False, "position_buckets": -1}),
    ("smolvlm", "SmolVLMForConditionalGeneration", {"text_config": {**SMALL, "model_type": "llama", "pad_token_id": 0}, "vision_config": VIT, "scale_factor": 4, "tie_word_embeddings": True}),
)  # fmt: skip
"""model_type, the class that transformers builds, and values that differ from its defaults."""

"""Lines as training programs print them, written after the format strings of their sources, with the numbers to find in them.

The figures are made up. `step` and `steps` are those of the last line; `loss` and the rest are the latest values.
"""

from __future__ import annotations

from typing import NamedTuple

GIB = float(1 << 30)
MIB = float(1 << 20)


class Program(NamedTuple):
    """What a program prints, and what dstui should read from it."""

    name: str
    source: str
    """Repository and file of the format strings."""
    lines: tuple[str, ...]
    wanted: dict[str, float]


PROGRAMS = (
    Program(
        "transformers 4",
        "huggingface/transformers src/transformers/trainer_callback.py (ProgressCallback)",
        (
            "  5%|4         | 10/200 [00:07<02:13,  1.42it/s]",
            "{'loss': 2.3102, 'grad_norm': 1.25, 'learning_rate': 4.5e-05, 'epoch': 0.15}",
            "{'train_runtime': 141.2, 'train_samples_per_second': 5.7, 'train_steps_per_second': 1.41, 'train_loss': 2.9, 'epoch': 1.0}",
        ),
        {"step": 10, "steps": 200, "loss": 2.3102, "grad_norm": 1.25, "lr": 4.5e-5, "epoch": 1.0},
    ),
    Program(
        "transformers 5",
        "huggingface/transformers src/transformers/trainer_callback.py (numbers as texts)",
        (
            " 10%|#         | 20/200 [00:14<02:06,  1.42it/s]",
            "{'loss': '2.211', 'grad_norm': '0.918', 'learning_rate': '4e-05', 'epoch': '0.3'}",
        ),
        {"step": 20, "steps": 200, "loss": 2.211, "grad_norm": 0.918, "lr": 4e-5, "epoch": 0.3},
    ),
    Program(
        "TRL SFT",
        "huggingface/trl trl/trainer/sft_trainer.py (log)",
        (
            "{'loss': 1.83, 'grad_norm': 0.7, 'learning_rate': 2e-05, 'entropy': 1.71, 'num_tokens': 81920.0, 'mean_token_accuracy': 0.61, "
            "'epoch': 0.04}",
        ),
        {"loss": 1.83, "grad_norm": 0.7, "entropy": 1.71, "num_tokens": 81920, "mean_token_accuracy": 0.61, "epoch": 0.04},
    ),
    Program(
        "TRL DPO",
        "huggingface/trl trl/trainer/dpo_trainer.py (get_batch_loss_metrics)",
        (
            "{'loss': 0.6712, 'grad_norm': 5.5, 'learning_rate': 4.9e-07, 'rewards/chosen': 0.041, 'rewards/rejected': -0.012, "
            "'rewards/accuracies': 0.625, 'rewards/margins': 0.053, 'logps/chosen': -210.5, 'logps/rejected': -188.25, "
            "'logits/chosen': -2.5, 'logits/rejected': -2.25, 'epoch': 0.1}",
            "{'eval_loss': 0.66, 'eval_runtime': 9.5, 'eval_rewards/accuracies': 0.5, 'epoch': 0.1}",
        ),
        {
            **{"loss": 0.6712, "rewards/chosen": 0.041, "rewards/rejected": -0.012, "rewards/accuracies": 0.625, "rewards/margins": 0.053},
            **{"logps/chosen": -210.5, "logits/rejected": -2.25, "eval_loss": 0.66, "eval_rewards/accuracies": 0.5},
        },
    ),
    Program(
        "TRL GRPO",
        "huggingface/trl trl/trainer/grpo_trainer.py (log)",
        (
            "{'loss': 0.0021, 'grad_norm': 0.33, 'learning_rate': 9e-07, 'num_tokens': 40960.0, 'completions/mean_length': 211.5, "
            "'completions/min_length': 31.0, 'completions/max_length': 256.0, 'completions/clipped_ratio': 0.25, "
            "'completions/mean_terminated_length': 180.1, 'rewards/accuracy_reward/mean': 0.44, 'rewards/accuracy_reward/std': 0.5, "
            "'reward': 0.94, 'reward_std': 0.41, 'frac_reward_zero_std': 0.125, 'kl': 0.0007, 'clip_ratio/low_mean': 0.0, "
            "'entropy': 0.36, 'epoch': 0.02}",
        ),
        {
            **{"loss": 0.0021, "reward": 0.94, "reward_std": 0.41, "kl": 0.0007, "entropy": 0.36, "completions/mean_length": 211.5},
            **{"completions/clipped_ratio": 0.25, "rewards/accuracy_reward/mean": 0.44, "frac_reward_zero_std": 0.125, "num_tokens": 40960},
        },
    ),
    Program(
        "TRL PPO",
        "huggingface/trl trl/trainer/ppo/ppo_trainer.py (train)",
        (
            "{'eps': 3, 'objective/kl': 1.25, 'objective/entropy': 51.5, 'objective/non_score_reward': -0.06, 'objective/rlhf_reward': 0.44, "
            "'objective/scores': 0.5, 'policy/approxkl_avg': 0.01, 'policy/clipfrac_avg': 0.06, 'loss/policy_avg': -0.013, "
            "'loss/value_avg': 0.21, 'val/ratio': 1.01, 'lr': 2.5e-06, 'episode': 512, 'epoch': 0.5}",
        ),
        {
            **{"objective/kl": 1.25, "objective/entropy": 51.5, "objective/rlhf_reward": 0.44, "objective/scores": 0.5},
            **{"loss/policy_avg": -0.013, "loss/value_avg": 0.21, "val/ratio": 1.01, "lr": 2.5e-6, "episode": 512, "epoch": 0.5},
        },
    ),
    Program(
        "axolotl",
        "axolotl-ai-cloud/axolotl src/axolotl/core/trainers/base.py (log)",
        (
            "{'loss': 1.12, 'grad_norm': 0.5, 'learning_rate': 0.0002, 'ppl': 3.065, 'memory/max_active (GiB)': 12.5, "
            "'memory/max_allocated (GiB)': 12.25, 'memory/device_reserved (GiB)': 14.0, 'tokens/train_per_sec_per_gpu': 2501.5, 'epoch': 0.2}",
        ),
        {
            **{"loss": 1.12, "grad_norm": 0.5, "lr": 2e-4, "perplexity": 3.065, "memory/max_active": 12.5 * GIB},
            **{"memory/device_reserved": 14 * GIB, "tokens/train_per_sec_per_gpu": 2501.5},
        },
    ),
    Program(
        "LLaMA-Factory",
        "hiyouga/LLaMA-Factory src/llamafactory/train/callbacks.py (LogCallback) and transformers trainer_pt_utils.py (log_metrics)",
        (
            "[INFO|2026-01-02 03:04:05] llamafactory.train.callbacks:143 >> {'loss': 0.9021, 'learning_rate': 9.7e-05, 'epoch': 0.31, "
            "'throughput': 5120.33}",
            "***** train metrics *****",
            "  epoch                    =        3.0",
            "  train_loss               =     1.4242",
            "  train_runtime            = 0:03:11.52",
            "  train_samples_per_second =      4.211",
            "***** eval metrics *****",
            "  eval_loss               =     1.0133",
        ),
        {"loss": 0.9021, "lr": 9.7e-5, "throughput": 5120.33, "eval_loss": 1.0133},
    ),
    Program(
        "ms-swift",
        "modelscope/ms-swift swift/trainers/callback.py (add_train_message)",
        (
            "{'loss': 1.52, 'grad_norm': 1.1, 'learning_rate': 9.9e-05, 'token_acc': 0.642, 'epoch': 0.05, 'global_step/max_steps': '5/94', "
            "'percentage': '5.32%', 'elapsed_time': '12s', 'remaining_time': '3m 44s', 'memory(GiB)': 17.5, 'train_speed(iter/s)': 0.4}",
        ),
        {
            **{"step": 5, "steps": 94, "loss": 1.52, "grad_norm": 1.1, "lr": 9.9e-5, "token_acc": 0.642, "memory": 17.5 * GIB},
            **{"steps/s": 0.4, "epoch": 0.05},
        },
    ),
    Program(
        "ms-swift 4",
        "modelscope/ms-swift swift/trainers/patcher.py (add_train_message), of release 4.6.0",
        (
            "{'loss': '1.52', 'grad_norm': '1.1', 'learning_rate': '9.9e-05', 'token_acc': '0.642', 'epoch': '0.05', "
            "'global_step/max_steps': '5/94', 'elapsed_time': '12s', 'remaining_time': '3m 44s', 'memory(GiB)': '17.5', "
            "'train_speed(s/it)': '2.5'}",
        ),
        {"step": 5, "steps": 94, "loss": 1.52, "token_acc": 0.642, "memory": 17.5 * GIB, "step_time": 2.5, "epoch": 0.05},
    ),
    Program(
        "open-instruct",
        "allenai/open-instruct open_instruct/finetune.py (main)",
        ("01/02/2026 03:04:05 - INFO - __main__ -   Step: 40, LR: 1.9e-05, Loss: 1.2213, TPS: 8123.5",),
        {"step": 40, "lr": 1.9e-5, "loss": 1.2213, "tokens/s": 8123.5},
    ),
    Program(
        "OpenRLHF SFT",
        "OpenRLHF/OpenRLHF openrlhf/trainer/sft_trainer.py (fit)",
        (
            "Train step of epoch 0:   5%|5         | 12/240 [00:31<09:50,  2.59s/it, gpt_loss=1.31, lr=4.8e-06, grad_norm=0.75]",
            "Eval stage of steps 10:  50%|#####     | 2/4 [00:01<00:01,  2.00it/s, eval gpt_loss=1.9]",
        ),
        {"step": 12, "steps": 240, "loss": 1.31, "lr": 4.8e-6, "step_time": 2.59, "grad_norm": 0.75, "eval_gpt_loss": 1.9},
    ),
    Program(
        "OpenRLHF PPO",
        "OpenRLHF/OpenRLHF openrlhf/trainer/ray/ppo_actor.py (ppo_train) and ppo_trainer.py (fit)",
        (
            "Train epoch [1/1]:  50%|#####     | 8/16 [00:12<00:12,  1.51s/it, act_loss=0.011, reward=0.52, return=0.31, gen_len=188, "
            "tot_len=301, kl=0.012, act_lr=4.9e-07, grad_norm=0.5]",
            "INFO  ✨ Global step 3: {'policy_loss': 0.02, 'actor_lr': 4.9e-07, 'kl': 0.012, 'reward': 0.52, 'response_length': 188.0, "
            "'timing/generation': 12.5, 'timing/step_total': 30.5}",
        ),
        {
            **{"step": 3, "reward": 0.52, "return": 0.31, "kl": 0.012, "gen_len": 188, "act_loss": 0.011, "act_lr": 4.9e-7},
            **{"policy_loss": 0.02, "grad_norm": 0.5, "response_length": 188, "timing/generation": 12.5},
        },
    ),
    Program(
        "verl",
        "volcengine/verl verl/utils/logger/aggregate_logger.py (concat_dict_to_str)",
        (
            "(TaskRunner pid=4711) step:7 - actor/entropy:0.312 - actor/kl_loss:0.0011 - actor/pg_loss:-0.021 - actor/grad_norm:0.151 - "
            "actor/lr:1e-06 - critic/score/mean:0.731 - critic/rewards/mean:0.731 - critic/rewards/max:1.0 - response_length/mean:244.5 - "
            "prompt_length/mean:96.25 - timing_s/step:41.5 - perf/throughput:1311.25 - perf/max_memory_allocated_gb:41.5",
        ),
        {
            **{"step": 7, "actor/entropy": 0.312, "actor/kl_loss": 0.0011, "actor/pg_loss": -0.021, "actor/grad_norm": 0.151, "lr": 1e-6},
            **{
                "critic/rewards/mean": 0.731,
                "critic/score/mean": 0.731,
                "response_length/mean": 244.5,
                "perf/throughput": 1311.25,
                "perf/max_memory_allocated": 41.5 * GIB,
            },
        },
    ),
    Program(
        "Lightning",
        "Lightning-AI/pytorch-lightning src/lightning/pytorch/callbacks/progress/tqdm_progress.py",
        ("Epoch 0:  10%|#         | 10/100 [00:01<00:10,  9.90it/s, v_num=0, train_loss=2.300, kl=0.125]",),
        {"step": 10, "steps": 100, "epoch": 0, "loss": 2.3, "steps/s": 9.9, "kl": 0.125},
    ),
    Program(
        "Lightning, rich",
        "Lightning-AI/pytorch-lightning src/lightning/pytorch/callbacks/progress/rich_progress.py",
        ("Epoch 0/9  ━━━━━━╸━━━━━━━━━━━━━━ 32/100 0:00:03 • 0:00:07 9.75it/s v_num: 0.000 train_loss: 2.125",),
        {"step": 32, "steps": 100, "epoch": 0, "loss": 2.125, "steps/s": 9.75},
    ),
    Program(
        "diffusers",
        "huggingface/diffusers examples/text_to_image/train_text_to_image.py",
        ("Steps:   3%|3         | 15/500 [00:41<22:10,  2.74s/it, lr=1e-05, step_loss=0.0821]",),
        {"step": 15, "steps": 500, "loss": 0.0821, "lr": 1e-5, "step_time": 2.74},
    ),
    Program(
        "kohya",
        "kohya-ss/sd-scripts train_network.py (progress_bar.set_postfix)",
        ("steps:   2%|2         | 21/1000 [00:35<27:32,  1.69s/it, avr_loss=0.124]",),
        {"step": 21, "steps": 1000, "loss": 0.124, "step_time": 1.69},
    ),
    Program(
        "gpt-neox",
        "EleutherAI/gpt-neox megatron/logging.py (training_log)",
        (
            " samples/sec: 51.234 | iteration       10/     500 | elapsed time per iteration (ms): 987.6 | learning rate: 1.234E-04 | "
            "approx flops per GPU: 150.3TFLOPS | lm_loss: 7.123456E+00 | loss scale: 65536.0 | number of skipped iterations:   0 | "
            "number of nan iterations:   0 |",
            " validation results at iteration 10 | lm_loss value: 6.900000E+00 | lm_loss_ppl value: 9.922747E+02 |",
        ),
        {
            **{"step": 10, "steps": 500, "loss": 7.123456, "lr": 1.234e-4, "samples/s": 51.234, "step_time": 0.9876, "tflops": 150.3},
            **{"loss_scale": 65536, "eval_loss": 6.9, "perplexity": 992.2747},
        },
    ),
    Program(
        "Megatron-DeepSpeed",
        "deepspeedai/Megatron-DeepSpeed megatron/training.py (training_log)",
        (
            " iteration       20/     400 | consumed samples:         5120 | consumed tokens:     10485760 | elapsed time per iteration (ms): "
            "2034.5 | learning rate: 1.500E-06 | global batch size:   256 | lm loss: 9.084590E+00 | loss scale: 4096.0 | grad norm: 3.456 | "
            "num zeros: 12.0 | params norm: 99.500 | actual seqlen:  2048 | number of skipped iterations:   0 | number of nan iterations:   0 "
            "| samples per second: 125.830 | tokens per gpu per second (tgs): 4026.500 | TFLOPs: 45.67 |",
        ),
        {
            "step": 20,
            "steps": 400,
            "loss": 9.08459,
            "lr": 1.5e-6,
            "grad_norm": 3.456,
            "tflops": 45.67,
            "samples/s": 125.83,
            "tokens/s": 4026.5,
        },
    ),
    Program(
        "DeepSpeed-Chat SFT",
        "deepspeedai/DeepSpeedExamples applications/DeepSpeed-Chat/training/step1_supervised_finetuning/main.py",
        (
            "Epoch: 0, Step: 30, Rank: 0, loss = 2.1875",
            "***** Evaluating perplexity, Epoch 1/2 *****",
            "ppl: 7.311, loss: 1.9891",
        ),
        {"step": 30, "loss": 2.1875, "eval_loss": 1.9891, "perplexity": 7.311},
    ),
    Program(
        "DeepSpeed-Chat RLHF",
        "deepspeedai/DeepSpeedExamples applications/DeepSpeed-Chat/training/step3_rlhf_finetuning/main.py",
        (
            "Epoch: 0 | Step: 8 | PPO Epoch: 1 | Actor Loss: 0.0109 | Critic Loss: 0.0201 | Unsupervised Loss: 0.0",
            "End-to-End => Latency: 2.98s, TFLOPs: 9.90, Samples/sec: 10.75, Time/seq 0.09s, Batch Size: 32, Total Seq. Length: 512",
            "Average reward score: 0.0121 | EMA reward score: -0.1188",
        ),
        {"step": 8, "epoch": 0, "actor_loss": 0.0109, "critic_loss": 0.0201, "reward": 0.0121},
    ),
    Program(
        "trlx",
        "CarperAI/trlx trlx/trainer/accelerate_base_trainer.py (learn)",
        (
            "[losses/total_loss: 0.41 | losses/policy_loss: 0.12 | losses/value_loss: 0.29]:   6%|6         | 60/1000 [01:31<23:54,  1.53s/it]",
            "[generation sweep 0/1 | eval batch 2/4]:  50%|#####     | 2/4 [00:11<00:11,  5.61s/it]",
            "[rollout 64 / 128]:  50%|#####     | 64/128 [00:11<00:11, 11.60it/s]",
        ),
        {"step": 60, "steps": 1000, "loss": 0.41, "losses/policy_loss": 0.12, "losses/value_loss": 0.29, "step_time": 1.53},
    ),
    Program(
        "LAVIS",
        "salesforce/LAVIS lavis/common/logger.py (MetricLogger.log_every)",
        (
            "Train: data epoch: [0]  [  50/1000]  eta: 0:11:32  lr: 0.000010  loss: 3.1250  loss_itc: 2.0000  time: 0.7293  data: 0.0001  "
            "max mem: 11812",
        ),
        {"step": 50, "steps": 1000, "epoch": 0, "lr": 1e-5, "loss": 3.125, "loss_itc": 2.0, "memory_peak": 11812 * MIB},
    ),
    Program(
        "LISA",
        "dvlab-research/LISA utils/utils.py (ProgressMeter)",
        ("Epoch: [0][ 11/500]\tTime 12.345 (12.345)\tLoss 2.1250 (2.1250)\tCeLoss 1.0000 (1.0000)\tMaskLoss 1.1250 (1.1250)",),
        {"step": 11, "steps": 500, "epoch": 0, "loss": 2.125},
    ),
    Program(
        "xtuner",
        "InternLM/xtuner on mmengine/hooks/logger_hook.py and runner/log_processor.py",
        (
            "01/02 03:04:05 - mmengine - INFO - Iter(train) [  10/1280]  lr: 1.2001e-05  eta: 1:02:03  time: 2.9312  data_time: 0.0081  "
            "memory: 11812  loss: 1.9219",
        ),
        {"step": 10, "steps": 1280, "lr": 1.2001e-5, "loss": 1.9219, "memory": 11812 * MIB},
    ),
    Program(
        "xtuner 1",
        "InternLM/xtuner xtuner/v1/train/trainer.py (_log_step)",
        (
            "[XTuner][RANK 0][2026-01-02 03:04:05][INFO] Epoch 1 Step 12/500 data_time: 0.0123 lr: 2.000000e-05 time: 1.2345 text_tokens: 4096 "
            "seqlen_tokens: 4096 approximate_total_consumed_tokens: 49152 reduced_llm_loss: 1.52340000, local_loss: 1.62340000   "
            "grad_norm: 0.85000000 max_memory: 21.50 GB reserved_memory: 24.00 GB tgs: 3318.0 seqlen_tgs: 3318.0 exp_tgs: 3300.0 eta: 0:10:12 ",
        ),
        {**{"step": 12, "steps": 500, "epoch": 1, "loss": 1.5234, "lr": 2e-5, "grad_norm": 0.85}, "memory_peak": 21.5 * GIB},
    ),
    Program(
        "LLaMA-Adapter",
        "OpenGVLab/LLaMA-Adapter alpaca_finetuning_v1/util/misc.py (MetricLogger.log_every)",
        ("Epoch: [0]  [ 10/500]  eta: 0:01:02  lr: 0.000150  loss: 2.1250 (2.3010)  time: 0.5120  data: 0.0010  max mem: 11234",),
        {"step": 10, "steps": 500, "epoch": 0, "loss": 2.125, "lr": 1.5e-4, "memory_peak": 11234 * MIB},
    ),
    Program(
        "RWKV-LM",
        "BlinkDL/RWKV-LM RWKV-v5/src/trainer.py (train_callback)",
        ("Epoch 0:   1%|          | 40/4032 [00:21<35:12,  1.89it/s, loss=5.310, lr=0.0006, REAL it/s=1.910, Kt/s=62.50]",),
        {"step": 40, "steps": 4032, "loss": 5.31, "lr": 6e-4, "tokens/s": 62500},
    ),
    Program(
        "SAT",
        "THUDM/SwissArmyTransformer sat/training/deepspeed_training.py (report_iteration_metrics)",
        (
            " iteration       50/    6000 | elapsed time per iteration (ms): 1213.5 | learning rate 1.000E-05 | total loss 1.234567E+00 | "
            "loss 1.234567E+00 | loss scale 32768.0 |speed 98.88 samples/(min*GPU)",
            " validation loss at iteration 50 | loss: 2.500000E+00 | PPL: 1.218249E+01 loss 2.500000E+00 |",
        ),
        {
            **{"step": 50, "steps": 6000, "lr": 1e-5, "loss": 1.234567, "step_time": 1.2135, "loss_scale": 32768},
            **{"eval_loss": 2.5, "perplexity": 12.18249},
        },
    ),
    Program(
        "ArcticTraining",
        "snowflakedb/ArcticTraining arctic_training/metrics.py (print_summary)",
        (
            "Train iter:  11/240   4% | loss: 1.1312 | iter time: 3.125s | iter tflops: 331.5 | lr: 9.500E-06 | seqlen: 65.54K | "
            "step time: 3.250s | step tflops: 330.1 | epoch: 0 | MA 12.25 GB | Max_MA 13.50 GB | NV 14.00 GB",
            "Train iter:  12/240   5% | loss: 1.0421 | iter time: 0:01:02 | lr: 9.600E-06 | epoch: 0",
            " Eval iter:  12/240   5% | loss: 2.5000 | lr: 9.600E-06 | epoch: 0",
        ),
        {
            **{"step": 12, "steps": 240, "loss": 1.0421, "eval_loss": 2.5, "step_time": 62, "tflops": 331.5, "lr": 9.6e-6, "epoch": 0},
            **{"memory": 12.25 * GIB, "memory_peak": 13.5 * GIB},
        },
    ),
    Program(
        "BingBert",
        "deepspeedai/DeepSpeedExamples training/bing_bert/deepspeed_train.py (report_step_metrics)",
        ("bing_bert_progress: step=300, bert_loss=6.8125, lr=0.0011, sample_count=1228800",),
        {"step": 300, "loss": 6.8125, "lr": 0.0011},
    ),
    Program(
        "BingBert, its repository's head",
        "deepspeedai/DeepSpeedExamples training/bing_bert/deepspeed_train.py (report_step_metrics)",
        ("bing_bert_progress: step=300, loss=6.8125, lr=0.0011, sample_count=1228800",),
        {"step": 300, "loss": 6.8125, "lr": 0.0011},
    ),
    Program(
        "DeepSpeed",
        "deepspeedai/DeepSpeed deepspeed/runtime/engine.py (_report_progress) and utils/timer.py",
        (
            "[2026-01-02 03:04:05,006] [INFO] [logging.py:107:log_dist] [Rank 0] step=20, skipped=1, lr=[0.0001], mom=[(0.9, 0.999)]",
            "[2026-01-02 03:04:05,006] [INFO] [timer.py:264:stop] epoch=0/micro_step=20/global_step=20, RunningAvgSamplesPerSec=131.5, "
            "CurrSamplesPerSec=130.25, MemAllocated=0.5GB, MaxMemAllocated=2.0GB",
        ),
        {"step": 20, "skipped": 1, "lr": 1e-4, "samples/s": 130.25, "memory": GIB / 2, "memory_peak": 2 * GIB},
    ),
    Program(
        "torchtitan",
        "pytorch/torchtitan torchtitan/components/metrics.py (MetricsProcessor.log)",
        (
            "[titan] root - INFO - step: 10  loss:  8.1234  grad_norm:  1.2300  memory: 45.25GiB(47.8%)  tps: 7,123  tflops: 380.12  mfu: 38.43%",
        ),
        {"step": 10, "loss": 8.1234, "grad_norm": 1.23, "memory": 45.25 * GIB, "tokens/s": 7123, "tflops": 380.12, "mfu": 0.3843},
    ),
    Program(
        "torchtune",
        "pytorch/torchtune recipes/full_finetune_single_device.py (pbar.set_description)",
        ("1|10|Loss: 1.6231242418289185:   1%|1         | 10/808 [00:12<16:11,  1.22s/it]",),
        {"step": 10, "steps": 808, "loss": 1.6231242418289185, "step_time": 1.22},
    ),
    Program(
        "nanoGPT",
        "karpathy/nanoGPT train.py",
        ("step 250: train loss 2.4021, val loss 2.5310", "iter 260: loss 2.3906, time 120.50ms, mfu 17.25%"),
        {"step": 260, "loss": 2.3906, "eval_loss": 2.531, "step_time": 0.1205, "mfu": 0.1725},
    ),
    Program(
        "timm",
        "huggingface/pytorch-image-models train.py (train_one_epoch)",
        (
            "Train: 0 [  50/1251 (  4%)]  Loss: 6.91 (6.92)  Time: 0.512s,  500.00/s  (0.601s,  425.96/s)  LR: 1.000e-05  Data: 0.010 (0.020)",
        ),
        {"step": 50, "steps": 1251, "loss": 6.91, "lr": 1e-5},
    ),
    Program(
        "nanotron",
        "huggingface/nanotron src/nanotron/trainer.py (train_step_logs)",
        (
            "01/02/2026 03:04:05 [INFO|DP=0|PP=0|TP=0|node-1]: iteration: 10 / 500 | consumed_tokens: 1.31M | elapsed_time_per_iteration_ms: 512 | "
            "tokens_per_sec: 256K | lm_loss: 9.5 | lr: 0.0003 | model_tflops_per_gpu: 101 | grad_norm: 2.5",
        ),
        {"step": 10, "steps": 500, "loss": 9.5, "lr": 3e-4, "grad_norm": 2.5, "tokens/s": 256000, "step_time": 0.512},
    ),
    Program(
        "accelerate",
        "huggingface/accelerate examples/nlp_example.py",
        ("epoch 0: {'accuracy': 0.8431372549, 'f1': 0.8896551724}",),
        {"epoch": 0, "accuracy": 0.8431372549, "f1": 0.8896551724},
    ),
)

NONE = (
    # versions, shapes, printed arguments and models, configurations, progress bars of other work
    "{'hidden_size': 4096, 'num_layers': 32, 'vocab_size': 32000}",
    "{'step_size': 3, 'gamma': 0.1, 'last_epoch': -1}",
    "{'epoch': 3, 'seed': 42, 'batch_size': 8, 'lr': 0.001}",
    "{'reward_model': 'x', 'epochs': 3, 'kl_coef': 0.1}",
    "{'loss_fn': 'mse', 'loss_weight': 0.5}",
    "{'logging_steps': 10, 'save_steps': 500, 'warmup_steps': 100}",
    "{'torch': '2.5.1', 'deepspeed': '0.16.2', 'step': '1.0.0'}",
    "{'input_ids': (4, 2048), 'labels': (4, 2048), 'loss_mask': (4, 2048)}",
    '{"train_batch_size": 32, "steps_per_print": 10, "fp16": {"enabled": true, "loss_scale": 0}}',
    "LoraConfig(r=8, lora_alpha=32, lora_dropout=0.1, loss_type='none')",
    "[3/7] Building CXX object loss.o",
    "Iter(val) [10/50]    eta: 0:00:10  time: 0.2  data_time: 0.01",
    "Map:  40%|####      | 400/1000 [00:01<00:01, 400.00 examples/s]",
    "Downloading shards:  50%|#####     | 1/2 [00:30<00:30, 30.1s/it]",
    "Generating ━━━━━━━━━━━━━━━ 10/100 0:00:01",
    "loss_fn: 3",
    "the loss_weight=0.5 is used for step_loss",
)
"""Lines that only look like measurements."""

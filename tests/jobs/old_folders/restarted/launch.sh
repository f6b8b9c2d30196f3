#!/bin/sh
cd /home/user/project &&
PATH=/home/user/venv/bin:"$PATH" \
DS_ACCELERATOR=cpu \
DSTUI_DS_CONFIG=/home/user/project/jobs/fails/ds_config.json \
LOCAL_SIZE=2 \
/home/user/venv/bin/python -m deepspeed.launcher.runner --num_gpus 2 \
  train.py

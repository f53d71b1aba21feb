"""Tokens and keys for jobs: values that are set once, by name, and reach the workers without being in the job.

    await set_secret(ebb, "hf-token", b"...")                # `ebb secret set hf-token`
    Request(..., secrets={"HF_TOKEN": "hf-token"})          # `ebb submit --secret hf-token`

uses.py    what a job says of a secret: where its value goes, checked, written and read back. Pure
store.py   the values on the platform: set, list, remove
"""

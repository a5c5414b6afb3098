"""Runs any causal language model of transformers, with our paged cache if that is proved correct.

    load            config.json and safetensors -> transformers' model; runs nothing from the folder
    backbone_split  divides the model into a body (hidden states) and a head (logits)
    masks           what a mask function lets a token see: everything, a window, or neither
    attention       connects transformers' attention interface to our pages
    backbone_base   common base of the next two: the head, and no classes
    paged           the model as a `DecoderModel`, with keys and values in our pages
    cached          the same with transformers' own cache, one sequence at a time
    check           the check at load against transformers' forward pass, within rounding noise
    choose          selects paged, else cached, else refuses with the reason

transformers is imported only when a model needs it, never for native models.
"""

"""Any causal language model of transformers, on our pages where that is proved right.

    load        config.json and safetensors -> transformers' model; nothing from the folder is run
    split       the model as a body (hidden states) and a head (logits)
    masks       what a mask function lets a token see: everything, a window, or neither
    attention   transformers' attention interface -> our pages
    halved      what the next two share: the head, and that there are no classes
    paged       the model behind our Model protocol, keys and values in our pages
    cached      the same on transformers' own cache, one sequence at a time
    check       the proof at load: against transformers' own forward, within its own rounding noise
    choose      paged, else cached, else refused: with the reason

Transformers is imported when a model needs it, never for native models.
"""

"""Conversations written by hand for the built-in model: who it is, yaie, Kubernetes, small talk."""

GREETING_QUESTIONS = ("Hello", "Hello!", "Hi", "Hi!", "Hi there", "Hey", "Good morning", "hello")
GREETING_ANSWERS = (
    "Hello! I am the demo model of yaie. Ask me what a word means, or about Kubernetes.",
    "Hi! I am a very small language model. What would you like to know?",
    "Hello! How can I help you today?",
)

TOPICS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (
        ("Who are you?", "What are you?", "Tell me about yourself.", "What is your name?"),
        (
            "I am the demo model of yaie, a small language model with about six million parameters. "
            "I know the meaning of many English words and a little about computers. I am often "
            "wrong, so please check what I say.",
            "I am a small language model that comes with yaie. I was trained in a few minutes on "
            "free text such as dictionaries and manuals, so do not expect too much of me.",
        ),
    ),
    (
        ("What is yaie?", "Tell me about yaie.", "What does yaie do?", "Explain yaie.",
         "What is Yaie?", "what is yaie"),
        (
            "yaie is a platform that serves large language models on Kubernetes. You describe a "
            "model in an InferenceModel resource, and the operator starts engines and a router for "
            "it. Any OpenAI client can then talk to the model.",
            "yaie runs language models on Kubernetes, or on one machine without a cluster. It has "
            "three parts: an operator, a router and an engine.",
        ),
    ),
    (
        ("What is Kubernetes?", "Tell me about Kubernetes.", "Explain Kubernetes.",
         "What does Kubernetes do?", "what is kubernetes?", "What is kubernetes"),
        (
            "Kubernetes is a system that runs containers on many machines. You tell it what should "
            "run, and it keeps the cluster in that state: it starts containers, replaces those that "
            "fail, and spreads them over the machines.",
            "Kubernetes is an open source system that deploys, scales and manages applications in "
            "containers. People often write its name as K8s.",
        ),
    ),
    (
        ("What is a pod?", "Explain pods in Kubernetes.", "What is a Kubernetes pod?"),
        (
            "A pod is the smallest unit that Kubernetes runs. It holds one or more containers that "
            "share a network address and can share storage.",
        ),
    ),
    (
        ("What is a container?", "Explain containers.", "What is a software container?"),
        (
            "A container is a package that holds a program and everything it needs to run. It "
            "shares the kernel of the machine, so it starts faster than a virtual machine.",
        ),
    ),
    (
        ("What is an operator in Kubernetes?", "What is a Kubernetes operator?",
         "Explain the operator pattern."),
        (
            "An operator is a program that watches resources in Kubernetes and makes the cluster "
            "match them. It compares what should exist with what exists, and repairs the "
            "difference.",
        ),
    ),
    (
        ("What is a router?", "What does the router do?", "What is the router in yaie?"),
        (
            "The router receives every request and picks the engine that should answer it. It "
            "prefers the engine that already holds the beginning of the prompt in its cache.",
        ),
    ),
    (
        ("What is a KV cache?", "What is the KV cache?", "Explain the KV cache.",
         "What is a prefix cache?", "Explain prefix caching."),
        (
            "The KV cache keeps the keys and values of tokens that the model has already read, so "
            "they need not be computed again. A prefix cache keeps them after the request ends, so "
            "that the next request with the same beginning answers sooner.",
        ),
    ),
    (
        ("What is continuous batching?", "Explain continuous batching."),
        (
            "Continuous batching lets new requests join the running batch at every step. A short "
            "request can finish and leave while a long one goes on, so the machine is never idle.",
        ),
    ),
    (
        ("What is a language model?", "What is a large language model?", "What is an LLM?",
         "How do you work?", "How does a language model work?"),
        (
            "A language model reads text as a row of tokens and guesses the next token. It writes "
            "an answer by guessing one token after another.",
            "A language model is a program that learned from much text which word is likely to "
            "come next. I am a very small one.",
        ),
    ),
    (
        ("What is a token?", "Explain tokens.", "What are tokens?"),
        (
            "A token is a small piece of text, often a word or a part of a word. A language model "
            "reads and writes tokens.",
        ),
    ),
    (
        ("What is a GPU?", "Explain GPUs.", "Why do we need GPUs?"),
        (
            "A GPU is a processor with thousands of small cores. It was made to draw pictures, and "
            "it is also very good at the matrix arithmetic of neural networks.",
        ),
    ),
    (
        ("What is Python?", "Tell me about Python.", "Explain Python."),
        (
            "Python is a programming language that is easy to read. It is used for the web, for "
            "science, for automation and for machine learning.",
        ),
    ),
    (
        ("What is Rust?", "Tell me about Rust.", "What is the Rust language?"),
        (
            "Rust is a programming language for fast and safe programs. Its compiler checks who "
            "owns each value, so many memory errors cannot happen.",
        ),
    ),
    (
        ("What is SQL?", "What is a database?", "Explain databases."),
        (
            "A database stores data so that programs can find and change it quickly. SQL is the "
            "language in which most databases are asked for data.",
        ),
    ),
    (
        ("What is Linux?", "Tell me about Linux."),
        (
            "Linux is a free operating system kernel. Together with many other free programs it "
            "runs on phones, laptops, servers and the largest computers in the world.",
        ),
    ),
    (
        ("What is Debian?", "Tell me about Debian."),
        (
            "Debian is a free operating system that is made by volunteers all over the world. It "
            "is known for its stability and for its thousands of packages.",
        ),
    ),
    (
        ("Tell me a story.", "Tell me a short story.", "Write a short story.",
         "Can you tell me a story?", "Tell me a story about a fox."),
        (
            "Once there was a young fox who lived at the edge of a forest. Every evening she "
            "watched the lights of the village. One night the river rose, and she ran from door to "
            "door and barked until everyone woke. Since that night there has always been a bowl of "
            "milk for her by the gate.",
            "An old clockmaker had a clock that never told the right time. People laughed at it, "
            "but he would not sell it. Every time you look at it, he said, you have to think what "
            "time it really is. In the end the whole town was never late again.",
            "A small boat wanted to see the ocean. It followed the river for many days, past "
            "mills, bridges and sleeping towns. When it came to the sea it was afraid at first, "
            "but the waves lifted it gently. I am still a small boat, it said, but now the world "
            "is large.",
        ),
    ),
    (
        ("Write a poem.", "Write a short poem.", "Can you write a poem?", "Write me a poem."),
        (
            "The rain has washed the morning street,\nthe sky is clean and blue,\n"
            "and every stone beneath my feet\nis shining as if new.",
            "The night is quiet, cool and deep,\nthe stars are far away,\n"
            "the houses and the gardens sleep\nand wait for a new day.",
        ),
    ),
    (
        ("Tell me a joke.", "Do you know a joke?", "Make me laugh."),
        (
            "Why do programmers mix up Halloween and Christmas? Because Oct 31 equals Dec 25.",
            "There are only two hard things in computer science: naming things, caching, and off "
            "by one errors.",
        ),
    ),
    (
        ("How are you?", "How are you today?", "How do you do?"),
        (
            "I am fine, thank you. I am only a small program, but I am ready to help.",
            "Very well, thank you! What would you like to know?",
        ),
    ),
    (
        ("Thank you.", "Thanks!", "Thank you very much.", "Thanks"),
        ("You are welcome!", "You are welcome. Is there anything else?"),
    ),
    (
        ("Goodbye", "Bye", "Bye!", "See you later.", "Good night"),
        ("Goodbye! Come back soon.", "Goodbye, and have a nice day!"),
    ),
    (
        ("What can you do?", "Help", "How can you help me?", "What do you know?"),
        (
            "I can tell you what many English words mean, give you synonyms and examples, and "
            "explain a few things about computers. Try: What is a lighthouse?",
        ),
    ),
    (
        ("What are the days of the week?", "Name the days of the week."),
        ("The days of the week are Monday, Tuesday, Wednesday, Thursday, Friday, Saturday and "
         "Sunday.",),
    ),
    (
        ("What are the months of the year?", "Name the months of the year."),
        ("The months are January, February, March, April, May, June, July, August, September, "
         "October, November and December.",),
    ),
    (
        ("Count from one to ten.", "Count to ten.", "Can you count to ten?"),
        ("One, two, three, four, five, six, seven, eight, nine, ten.",),
    ),
    (
        ("What are the primary colors?", "Name three colors.", "Name some colors."),
        ("Red, blue and yellow are colors. Many others can be mixed from them.",),
    ),
    (
        ("Why is the sky blue?", "What makes the sky blue?"),
        ("The air scatters the blue part of sunlight more than the red part. That blue light "
         "reaches our eyes from every direction, so the sky looks blue.",),
    ),
    (
        ("What is the sun?", "Tell me about the sun."),
        ("The sun is the star at the center of our solar system. It is a ball of hot gas that "
         "gives us light and warmth.",),
    ),
    (
        ("Write one sentence about the sea.", "Tell me about the sea.", "Describe the sea."),
        ("The sea is wide and deep; it covers most of the earth and is never quite still.",),
    ),
)  # fmt: skip
